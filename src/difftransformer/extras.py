"""Which extra of this package brings a module that is not installed.

The package is on no index: extras are installed in a checkout.
"""

import re
from importlib import metadata

_OTHER_NAMES = {"flash_attn": "flash_attn_4", "psycopg2": "psycopg2_binary", "yaml": "pyyaml"}
"""Module -> its distribution, where they differ by more than signs."""


def install_hint(error: ModuleNotFoundError) -> str | None:
    """Say in one line what is not installed and how to get it; None for what no extra brings."""
    module = (error.name or "").partition(".")[0]
    wanted = _OTHER_NAMES.get(module, module).lower()
    found = []
    for line in metadata.requires("difftransformer") or []:
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra == ['\"](\w+)['\"]", line)
        if name and extra and re.sub(r"[-.]", "_", name[0]).lower() == wanted:
            found.append(extra[1])
    if not found:
        return None
    extra_name = min(found, key=lambda one: one == "dev")  # which brings the others along
    return f"{module} is not installed: {install(extra_name)}"


def install(extra: str = "") -> str:
    """Return the command that installs the package with an extra."""
    return f"pip install '.[{extra}]' in a checkout" if extra else "pip install . in a checkout"

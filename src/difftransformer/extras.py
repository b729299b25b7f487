"""Advice on the extra of this package that installs a missing module.

The package is not on PyPI, so extras are installed from a checkout.
"""

import re
from importlib import metadata

_OTHER_NAMES = {"flash_attn": "flash_attn_4", "psycopg2": "psycopg2_binary", "yaml": "pyyaml"}
"""Module name -> name of its distribution, if they differ by more than punctuation."""


def install_hint(error: ModuleNotFoundError) -> str | None:
    """Return the advice how to install a missing module, or None if no extra contains it."""
    module = (error.name or "").partition(".")[0]
    wanted = _OTHER_NAMES.get(module, module).lower()
    extras = []
    for line in metadata.requires("difftransformer") or []:
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra == ['\"](\w+)['\"]", line)
        if name and extra and re.sub(r"[-.]", "_", name[0]).lower() == wanted:
            extras.append(extra[1])
    if not extras:
        return None
    extra_name = min(extras, key=lambda name: name == "dev")  # dev contains the others
    return f"{module} is not installed: {install(extra_name)}"


def install(extra: str = "") -> str:
    """Return the command that installs this package with an extra, in a checkout."""
    return f"pip install '.[{extra}]' in a checkout" if extra else "pip install . in a checkout"

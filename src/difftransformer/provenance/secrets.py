"""Keeping passwords and tokens out of everything that is written: they stay in the environment."""

import os
import re

_NAMES = re.compile(r"(?i)(key|token|secret|passw|pwd|credential)")
_SHORTEST = 6
"""A shorter value is no secret, and masking it would eat ordinary words."""


def displayed(text: str) -> str:
    """Give an address, or a text with addresses, without user names, passwords and tokens."""
    shown = re.sub(r"//\S*@", "//***@", text)
    return re.sub(r"(?i)((?:passw|pwd|token|secret|key)[^=&?\s]*=)[^&\s]*", r"\1***", shown)


def masked(text: str) -> str:
    """Give a text without what the environment keeps secret: values of keys, tokens, passwords.

    The longest go first, so that nothing is left of one that begins like another.
    """
    secrets = {name: value.strip() for name, value in os.environ.items() if _NAMES.search(name)}
    for name, value in sorted(secrets.items(), key=lambda one: len(one[1]), reverse=True):
        if len(value) >= _SHORTEST:
            text = text.replace(value, f"<{name}>")
    return displayed(text) if "//" in text else text

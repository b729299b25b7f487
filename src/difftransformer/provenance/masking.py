"""Mask secrets and local folders in published text, and detect secrets in configured addresses.

Passwords and tokens are read from the environment. A text is searched for each in every form in
which libraries print it. Not masked: a secret of fewer than six characters or from a file, a part
of a secret, and a secret that is hashed or encoded in another way, such as base64.
"""

import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from html import escape
from typing import Any
from urllib.parse import unquote

_NAME = (
    r"key|token(?!iz)|secret|pass|pwd|cred|jwt|auth(?!or(?!iz))|cookie|bearer|signature"
    r"|(?<![a-z])(?:pat|sig|sas)(?![a-z])"
)
"""Pattern of the names of variables, and of keys in addresses, whose values are secrets."""
_FOLDERS = ("PWD", "OLDPWD")
"""Shell variables that hold folders although their names match `_NAME`."""
_MIN_LENGTH, _MIN_LINE_LENGTH = 6, 16
"""Values shorter than this are not masked, since masking them would remove ordinary words."""

_NAMES = re.compile(f"(?i){_NAME}")
_KEYS = re.compile(rf"(?i)((?:{_NAME})[^\s=&?;#/]*(?:=|%3D))([^\s&]*)")
_USERS = re.compile(r"(?i)(//|:(?!//))\S*(?:@|%40)")
_IN_ADDRESSES = (re.compile(r"//[^/@:]*:(.*)@"), re.compile(r"//([^/@:]{16,})[:@]"))
"""Patterns of secrets in an address: a password, and a user name long enough to be a token."""
_HEADERS = (
    (re.compile(r"(?i)(authorization['\"]?\s?[:=]\s?['\"]?(?:\w+ )?)[^\s'\",<]+"), r"\1***"),
    (re.compile(r"(?i)(\bbearer )[\w.~+/=-]{16,}"), r"\1***"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"), "***"),  # a JSON web token
)
_PATH = re.compile(
    r"(?:[\w+]+:///|file:|~|\.{1,2}[/\\]|[/\\]|[A-Za-z]:[/\\]).*|[^\s:/]+(?:/[^\s:/]+){2,}"
)
_FOLDERS_WITHIN = re.compile(
    r"(?<![\w.:*/])(?:file://|~[\w.-]*|\.{1,2}|[A-Za-z]:)?[/\\](?:[^,;:'\"()/\\]+[/\\])+"
)


def mask_addresses(text: str) -> str:
    """Return ``text`` with user names, passwords and tokens in its addresses replaced by ***."""
    return _KEYS.sub(r"\1***", _USERS.sub(r"\1***@", text))


def mask_secrets(text: str) -> str:
    """Return ``text`` with the secrets of the environment masked: keys, tokens and passwords.

    Longer secrets are masked first, so that no part of a secret that begins with another remains.
    """
    for value, name in sorted(_secrets(), key=lambda secret: len(secret[0]), reverse=True):
        text = _in_any_form(value).sub(f"<{name}>".replace("\\", r"\\"), text)
    for header, replacement in _HEADERS:
        text = header.sub(replacement, text)
    return mask_addresses(text) if "//" in text else text


def without_folders(value: Any) -> Any:
    """Return a JSON value in which each local path is shortened to its last part.

    A string that is a path keeps only the part after its last separator, whatever characters it
    has. A string that contains paths, such as the origin of a corpus, loses their absolute folders.
    """
    if isinstance(value, Mapping):
        return {key: without_folders(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(item) for item in value]
    if not isinstance(value, str):
        return value
    if _PATH.fullmatch(value) and ", " not in value:
        return re.split(r"[/\\]", value.rstrip("/\\"))[-1]
    return _FOLDERS_WITHIN.sub("", value)


def bare_address(address: str) -> str:
    """Return the address of a server without user name, password, query and fragment."""
    return re.split(r"[?#]", re.sub(r"//.*@", "//", address))[0].rstrip("/")


def has_secret(address: str) -> bool:
    """Return whether the address of a store may contain a secret.

    A user name, a password, a query or a key counts as a secret. SQLite addresses have no user
    name, and their file names may have any character. The address of a server needs no
    """
    decoded = address
    while (unquoted := unquote(decoded)) != decoded:
        decoded = unquoted
    scheme, _, path = decoded.partition(":")
    if scheme.lower().startswith("sqlite") and path.startswith("///"):
        return bool(_KEYS.search("".join(re.split(r"([?#])", path, maxsplit=1)[1:])))
    server = scheme.lower().startswith("http") and "?" in path
    return "@" in decoded or "#" in decoded or server or bool(_KEYS.search(decoded))


def _secrets() -> Iterator[tuple[str, str]]:
    """Yield each secret of the environment with the name of its variable."""
    for name, value in os.environ.items():
        values = [match for pattern in _IN_ADDRESSES for match in pattern.findall(value)]
        values += [secret for _, secret in _KEYS.findall(value)] if "//" in value else []
        values += [unquote(encoded) for encoded in values]
        if _NAMES.search(name) and name not in _FOLDERS:
            values.append(value)
            values += [line for line in value.splitlines() if len(line.strip()) >= _MIN_LINE_LENGTH]
        for secret in {secret.strip() for secret in values}:
            if len(secret) >= _MIN_LENGTH:
                yield secret, name


@lru_cache(maxsize=256)
def _in_any_form(value: str) -> re.Pattern[str]:
    """Return a pattern for a text as it is, URL-encoded, escaped in Python or JSON, or in HTML."""
    return re.compile("".join(_forms(sign) for sign in re.findall(r"\s+|\S", value)))


def _forms(sign: str) -> str:
    if sign.isspace():
        return r"(?:\s|\+|%(?:20|09|0[AaDd])|\\+[ntr])+"
    if sign.isascii() and sign.isalnum():
        return sign
    units = sign.encode("utf-16-be").hex()
    encoded = (
        "".join(f"%{byte:02X}" for byte in sign.encode()),
        "".join(rf"\\+x{byte:02x}" for byte in sign.encode()),
        "".join(rf"\\+u{units[at : at + 4]}" for at in range(0, len(units), 4)),
        rf"\\+{re.escape(sign.encode('unicode_escape').decode().lstrip(chr(92)))}",
        f"{re.escape(escape(sign))}|&#{ord(sign)};",
    )
    return rf"(?:(?i:{'|'.join(encoded)})|\\*{re.escape(sign)})"

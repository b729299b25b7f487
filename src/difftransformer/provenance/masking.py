"""Secrets and folders of this machine in what others read, and secrets in addresses of a file.

Passwords and tokens stay in the environment. A text is searched for them in every form in which
libraries print one. What cannot be found: a secret of under six characters or from a file, a part
of one, and one that is hashed or encoded otherwise, in base64 say.
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
"""What a variable, or a key of an address, is called that holds a secret."""
_FOLDERS = ("PWD", "OLDPWD")
"""Of a shell."""
_SHORTEST, _SHORTEST_LINE = 6, 16
"""A shorter value is no secret, and masking it would eat ordinary words."""

_NAMES = re.compile(f"(?i){_NAME}")
_KEYS = re.compile(rf"(?i)((?:{_NAME})[^\s=&?;#/]*(?:=|%3D))([^\s&]*)")
_USERS = re.compile(r"(?i)(//|:(?!//))\S*(?:@|%40)")
_IN_ADDRESSES = (re.compile(r"//[^/@:]*:(.*)@"), re.compile(r"//([^/@:]{16,})[:@]"))
"""A password, and a user that is long enough for a token."""
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


def displayed(text: str) -> str:
    """Give an address, or a text with addresses, without user names, passwords and tokens."""
    return _KEYS.sub(r"\1***", _USERS.sub(r"\1***@", text))


def masked(text: str) -> str:
    """Give a text without what the environment keeps secret: values of keys, tokens, passwords.

    The longest go first, so that nothing is left of one that begins like another.
    """
    for value, name in sorted(_secrets(), key=lambda one: len(one[0]), reverse=True):
        text = _in_any_form(value).sub(f"<{name}>".replace("\\", r"\\"), text)
    for header, shown in _HEADERS:
        text = header.sub(shown, text)
    return displayed(text) if "//" in text else text


def without_folders(value: Any) -> Any:
    """Give a value of JSON for others to read: of each path of this machine only its last part.

    A string that is a path loses all before its last separator, whatever signs are in it; one that
    has paths within, as the origin of a corpus, the folders that start at a root.
    """
    if isinstance(value, Mapping):
        return {key: without_folders(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(one) for one in value]
    if not isinstance(value, str):
        return value
    if _PATH.fullmatch(value) and ", " not in value:
        return re.split(r"[/\\]", value.rstrip("/\\"))[-1]
    return _FOLDERS_WITHIN.sub("", value)


def bare_address(address: str) -> str:
    """Give the address of a server for a browser: without user, password, query and fragment."""
    return re.split(r"[?#]", re.sub(r"//.*@", "//", address))[0].rstrip("/")


def has_secret(address: str) -> bool:
    """Whether the address of a store has a place for a secret: a user or more, a query's key.

    A file's has no user, and may have any signs in its name. That of a server has no query.
    """
    plain = address
    while (decoded := unquote(plain)) != plain:
        plain = decoded
    scheme, _, rest = plain.partition(":")
    if scheme.lower().startswith("sqlite") and rest.startswith("///"):
        return bool(_KEYS.search("".join(re.split(r"([?#])", rest, maxsplit=1)[1:])))
    server = scheme.lower().startswith("http") and "?" in rest
    return "@" in plain or "#" in plain or server or bool(_KEYS.search(plain))


def _secrets() -> Iterator[tuple[str, str]]:
    """Yield secrets of the environment with the names of their variables."""
    for name, value in os.environ.items():
        found = [one for pattern in _IN_ADDRESSES for one in pattern.findall(value)]
        found += [one for _, one in _KEYS.findall(value)] if "//" in value else []
        found += [unquote(one) for one in found]
        if _NAMES.search(name) and name not in _FOLDERS:
            found.append(value)
            found += [one for one in value.splitlines() if len(one.strip()) >= _SHORTEST_LINE]
        for one in {one.strip() for one in found}:
            if len(one) >= _SHORTEST:
                yield one, name


@lru_cache(maxsize=256)
def _in_any_form(value: str) -> re.Pattern[str]:
    """Return what matches a text as it is, in an address, in Python's or JSON's quotes, in HTML."""
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

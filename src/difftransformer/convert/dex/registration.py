"""Add Dex to peft's enumeration of methods.

peft requires an entry there to register a method, and offers no way to add one; an Enum looks its
members up in the three tables below (Python 3.11 to 3.14).
"""

from peft import PeftType


def _member(name: str) -> PeftType:
    if name in PeftType.__members__:
        return PeftType[name]
    member = str.__new__(PeftType, name)
    member._name_ = member._value_ = name
    type.__setattr__(PeftType, name, member)
    PeftType._member_names_.append(name)
    PeftType._member_map_[name] = member
    PeftType._value2member_map_[name] = member
    return member


DEX = _member("DEX")

"""Ways to adapt a trained model: a choice by name, ``adapt.method``.

Adding a method: write ``training/methods/<name>.py`` with its ``Settings`` and a function
``prepare`` that takes a model, settings and the `Task` and gives a `Method`; nothing else names it.
It may freeze parameters of the model, or add some. Lazy: only the file of the selected method is
imported, and is part of a run's fingerprint.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from difftransformer.config.validation import validate
from difftransformer.errors import ConfigError, lookup

if TYPE_CHECKING:
    from difftransformer.models.language_model import HFCausalLM
    from difftransformer.training.method import Method, MethodSettings, Task


def methods() -> tuple[str, ...]:
    """Names of all methods; imports none of them."""
    return tuple(sorted(found.name for found in iter_modules(__path__)))


def method_module(name: str, where: str = "adapt.method") -> str:
    """Module of a method, without importing it.

    Raises:
        ConfigError: no method of that name.
    """
    known = {found: f"{__name__}.{found}" for found in methods()}
    module: str = lookup(known, name, "method", where)
    return module


def settings_class(name: str, where: str = "adapt.method") -> type[MethodSettings]:
    """Return the settings of a method; imports its file.

    Raises:
        ConfigError: no method of that name.
    """
    found: type[MethodSettings] = import_module(method_module(name, where)).Settings
    return found


def configure(options: dict[str, Any], where: str = "adapt") -> MethodSettings:
    """Check the settings of an adaptation.

    Args:
        options: As written in the configuration; ``method`` is required.
        where: File and key path that errors name.

    Raises:
        ConfigError: naming the key, what was found, what is allowed and the nearest name.
    """
    if not isinstance(options.get("method"), str):
        raise ConfigError(f"{where}.method: missing; name a file of training/methods")
    return validate(settings_class(options["method"], f"{where}.method"), options, where)


def prepare(model: HFCausalLM, settings: MethodSettings, task: Task) -> Method:
    """Make a model ready for the method that its settings name."""
    made: Method = import_module(method_module(settings.method)).prepare(model, settings, task)
    return made

"""Methods of adaptation (fine-tuning), selected by name in ``adapt.method``.

To add one, write ``training/methods/<name>.py`` with its ``Settings`` and a function ``prepare`` of
a model, settings and the `Task` that returns a `Method`. It may freeze or add parameters. Only the
file of the selected method is imported, and is part of a run's fingerprint.
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
    """Return the names of all fine-tuning methods, without importing them."""
    return tuple(sorted(module.name for module in iter_modules(__path__)))


def method_module(name: str, location: str = "adapt.method") -> str:
    """Return the module name of a fine-tuning method, without importing it.

    Raises:
        ConfigError: There is no method of that name.
    """
    modules = {method: f"{__name__}.{method}" for method in methods()}
    module: str = lookup(modules, name, "method", location)
    return module


def settings_class(name: str, location: str = "adapt.method") -> type[MethodSettings]:
    """Return the settings class of a fine-tuning method; imports the method's file.

    Raises:
        ConfigError: There is no method of that name.
    """
    settings: type[MethodSettings] = import_module(method_module(name, location)).Settings
    return settings


def configure(options: dict[str, Any], location: str = "adapt") -> MethodSettings:
    """Return the validated settings of a fine-tuning method.

    Args:
        options: Settings as written in the configuration; ``method`` is required.
        location: File and key path for error messages.

    Raises:
        ConfigError: A setting is unknown or has an invalid value.
    """
    if not isinstance(options.get("method"), str):
        raise ConfigError(f"{location}.method: missing; name a file of training/methods")
    return validate(settings_class(options["method"], f"{location}.method"), options, location)


def prepare(model: HFCausalLM, settings: MethodSettings, task: Task) -> Method:
    """Return the `Method` that trains ``model``, which is changed in place, with these settings."""
    method: Method = import_module(method_module(settings.method)).prepare(model, settings, task)
    return method

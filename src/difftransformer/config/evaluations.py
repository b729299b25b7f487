"""Discovery of evaluations by their folders, and the configs of their jobs."""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import BeforeValidator, SerializeAsAny, model_validator

from difftransformer.config.base import Name, Settings, setting
from difftransformer.config.evaluation import Options, Suite
from difftransformer.config.run import PretrainedModel
from difftransformer.config.timing import Timing
from difftransformer.config.validation import validate
from difftransformer.errors import ConfigError, lookup
from difftransformer.models.config import ModelConfig

Role = Literal["settings", "measure", "report", "judge"]
_FOLDER = Path(__file__).resolve().parents[1] / "evaluations"
_PAGE = "see docs/adding_an_evaluation.md"


class Evaluation(NamedTuple):
    """The classes and functions that the folder of an evaluation defines."""

    name: str
    options: type[Options]
    suite: type[Suite] | None
    timing: type[Timing] | None
    makes: frozenset[str]
    """Functions in its ``report.py``: ``section``, ``figure`` or both."""


@cache
def evaluations() -> tuple[str, ...]:
    """Return the names of all evaluations, sorted.

    Raises:
        ConfigError: The folder of an evaluation lacks a file or function; one line with its name.
    """
    names = sorted(path.name for path in _FOLDER.iterdir() if _exists(path.name))
    for name in names:
        _check_folder(_FOLDER / name)
    return tuple(names)


def _exists(name: str) -> bool:
    return name.isidentifier() and name[0] != "_" and (_FOLDER / name).is_dir()


def evaluation(name: str, location: str = "evaluation") -> Evaluation:
    """Return an evaluation by name; only its ``settings.py`` is imported.

    Args:
        name: Name of the evaluation.
        location: Place in the configuration that names it, for error messages.

    Raises:
        ConfigError: The name is unknown, and the message offers the nearest one; or the folder of
            the evaluation lacks a file or function.
    """
    if not _exists(name):
        lookup(dict.fromkeys(evaluations()), name, "evaluation", location)
    return _read(name)


@cache
def _read(name: str) -> Evaluation:
    makes = _check_folder(_FOLDER / name)
    settings = import_module(module_of(name, "settings"))
    options = getattr(settings, "Options", Options)
    suite, timing = getattr(settings, "Suite", None), getattr(settings, "Timing", None)
    for kind, candidate in ((Options, options), (Suite, suite), (Timing, timing)):
        if candidate is not None and not (
            isinstance(candidate, type) and issubclass(candidate, kind)
        ):
            raise ConfigError(
                f"evaluations/{name}/settings.py: {kind.__name__} is not that of "
                f"config.{kind.__module__.rpartition('.')[2]}; {_PAGE}"
            )
    if suite is not None:
        _check_suite(suite, name)
    return Evaluation(name, options, suite, timing, makes)


def module_of(name: str, role: Role) -> str:
    """Return the full name of an evaluation's module, such as its ``settings`` or ``report``."""
    return f"difftransformer.evaluations.{name}.{role}"


def suite_class(kind: object, location: str) -> type[Suite]:
    """Return the class of the settings of suites of a kind.

    Args:
        kind: Name of the suites' evaluation.
        location: Place in the configuration that names it, for error messages.

    Raises:
        ConfigError: No evaluation of this name has suites; the message offers the nearest name.
    """
    name = str(kind)
    if _exists(name) and (suite := evaluation(name).suite):
        return suite  # without importing the settings of all other evaluations
    suites = {name: suite for name in evaluations() if (suite := evaluation(name).suite)}
    return lookup(suites, name, "kind", location)


def timing_class(name: str, location: str = "evaluation") -> type[Timing]:
    """Return the class of the timing settings of an evaluation.

    Args:
        name: Name of the evaluation.
        location: Place in the configuration that names it, for error messages.

    Raises:
        ConfigError: The name is unknown, or the evaluation has no timings.
    """
    timing = evaluation(name, location).timing
    if timing is None:
        raise ConfigError(f"{location}: {name} times nothing; remove the entry")
    return timing


def _check_suite(suite: type[Suite], name: str) -> None:
    location = f"evaluations/{name}/settings.py: Suite"
    if get_args(suite.model_fields["kind"].annotation) != (name,):
        raise ConfigError(f'{location} needs the line `kind: Literal["{name}"] = ...`; {_PAGE}')
    if not suite.repeats and suite.reading is Suite.reading:
        raise ConfigError(f"{location} has no reading(self, model, longest); {_PAGE}")


def _check_folder(folder: Path) -> frozenset[str]:
    """Check the files and functions of an evaluation's folder without importing it.

    Returns:
        The functions of ``report.py`` among ``section`` and ``figure``.
    """
    location = f"evaluations/{folder.name}"
    for file in ("__init__.py", "settings.py", "report.py"):
        if not (folder / file).is_file():
            raise ConfigError(f"{location}: lacks {file}; {_PAGE}")
    classes = _defined(folder / "settings.py")
    suite_classes, measured = (
        {"Suite", "Timing"} & classes,
        "measure" in _defined(folder / "measure.py"),
    )
    if suite_classes and not measured:
        raise ConfigError(f"{location}: measure.py has no function measure; {_PAGE}")
    if measured and not suite_classes:
        raise ConfigError(
            f"{location}: settings.py has no class Suite for what is measured; {_PAGE}"
        )
    makes = frozenset({"section", "figure"} & _defined(folder / "report.py"))
    if not makes:
        raise ConfigError(
            f"{location}/report.py: has neither section(context) nor figure(context); {_PAGE}"
        )
    return makes


def _defined(path: Path) -> set[str]:
    """Return the names that a module defines or imports; empty without the file."""
    if not path.is_file():
        return set()
    try:
        body = ast.parse(path.read_bytes()).body
    except SyntaxError as error:
        raise ConfigError(f"{path}:{error.lineno}: not valid Python: {error.msg}") from None
    names = {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    imported = (node for node in body if isinstance(node, ast.ImportFrom))
    return names | {alias.asname or alias.name for node in imported for alias in node.names}


# --- configs of evaluation and benchmark jobs


def _typed(raw: Any) -> Any:
    """Validate a suite with the class that its ``kind`` names."""
    if not isinstance(raw, dict):
        return raw
    return validate(suite_class(raw.get("kind"), "config.kind"), raw, "config")


AnySuite = Annotated[SerializeAsAny[Suite], BeforeValidator(_typed)]
"""Settings of any suite, validated by the class that its ``kind`` names."""


class EvaluationConfig(Settings):
    """Resolved config of an evaluation job: a suite on a run at a scale."""

    scale: str = setting(meaning="Name of the scale the run was resolved at.")
    run: str = setting(meaning="Name of the run in runs.yaml.")
    suite: str = setting(meaning="Name of the suite in evaluations.yaml.")
    config: AnySuite = setting(meaning="What the suite measures.")
    pretrained: PretrainedModel | None = setting(
        None, meaning="The pretrained model; null: the run is trained."
    )


Models = dict[str, dict[str, ModelConfig]]
"""Row -> name of the size at which it is timed -> config of the timed model."""


class BenchmarkConfig(Settings):
    """Resolved config of a benchmark job; ``evaluation`` determines the class of ``config``."""

    scale: str = setting(meaning="Name of the scale.")
    evaluation: Name = setting(meaning="Which evaluation it is.")
    config: SerializeAsAny[Timing] = setting(meaning="What is timed, and how often.")
    models: Models = setting(meaning="Models of every row, by what `config` calls them.")

    @model_validator(mode="before")
    @classmethod
    def _typed_config(cls, raw: Any) -> Any:
        if not isinstance(raw, dict) or not isinstance(raw.get("config"), dict):
            return raw
        timing = timing_class(str(raw.get("evaluation")))
        return raw | {"config": validate(timing, raw["config"], "config")}

"""config/README.md and the JSON Schemas, generated from the typed settings."""

import json
from pathlib import Path
from typing import Annotated, Any, Union

from pydantic import BaseModel, Field, create_model

from difftransformer.config.artifacts import ArtifactConfig
from difftransformer.config.base import setting
from difftransformer.config.data import DatasetConfig, SourceConfig
from difftransformer.config.documentation import config_readme, config_schema
from difftransformer.config.measurements import measurement, measurements
from difftransformer.config.papers import PapersFile
from difftransformer.config.project import ProjectConfig, RunsFile
from difftransformer.config.registry import Registry
from difftransformer.config.run import RunSettings
from difftransformer.config.scale import ScaleConfig
from difftransformer.config.tokenizers import TokenizerConfig
from difftransformer.models.attention.registry import attention_class, variants
from difftransformer.provenance.atomic import write_text
from difftransformer.training.methods import methods, settings_class


def _meaning(key: str) -> str | None:
    return DatasetConfig.model_fields[key].description


class DatasetEntry(DatasetConfig):
    """A dataset as it is written: what its base gives may be left out."""

    base: str | None = setting(
        None,
        meaning="Dataset of the same file packed in another way: its settings, its tokenizer (the "
        "same file) and its held-out documents, but for what this entry changes; `corpus` takes "
        "the place of the base",
    )
    sources: dict[str, SourceConfig] = setting(
        {}, meaning=f"{_meaning('sources')} Required without a base; a base's can be added to"
    )
    tokenizer: TokenizerConfig | None = setting(  # type: ignore[assignment]
        None, meaning=f"{_meaning('tokenizer')} Required without a base; that of a base stays"
    )


class DatasetsFile(BaseModel):
    """``config/datasets.yaml``: corpora by name."""

    datasets: dict[str, DatasetEntry] = setting(meaning="Corpora by name")


OPENING = """
What people edit most: `config.yaml` says what a bare call builds; `runs.yaml` has a model a row; a
file of `artifacts/` is a table or a figure with its rows and published values. `registry.yaml` has
the registered claims, which change only by a new id.

Every key of `config.yaml` can be set for one call (`--config scale=smoke seeds=3`), settings of
single runs as well: `--config set='{diff: {training: {lr: 0.002}}}'`, or the same in a file,
`--configfile mine.yaml`. A wrong name or type stops everything before the first job starts.
"""


def files() -> dict[str, type[BaseModel]]:
    """Return the name of a schema -> the model of the file that it describes."""
    kinds = tuple(kind for name in measurements() if (kind := measurement(name).suite))
    suite: Any = Annotated[Union[kinds], Field(discriminator="kind")]  # noqa: UP007
    evaluations = create_model(
        "EvaluationsFile",
        __doc__="``config/evaluations.yaml``: what is measured on a trained model.",
        suites=(dict[str, suite], setting(meaning="Suites by name")),
    )
    return {
        "config": ProjectConfig,
        "runs": RunsFile,
        "artifact": ArtifactConfig,
        "evaluations": evaluations,
        "datasets": DatasetsFile,
        "scale": ScaleConfig,
        "papers": PapersFile,
        "registry": Registry,
    }


def documentation(folder: Path) -> dict[Path, str]:
    """Return the text of every generated file below the configuration folder."""
    schemas = config_schema({**files(), "run_settings": RunSettings})
    texts = {
        folder / "schema" / f"{name}.schema.json": json.dumps(schema, indent=2) + "\n"
        for name, schema in schemas.items()
    }
    texts[folder / "README.md"] = config_readme(_pages(), OPENING)
    return texts


def write_documentation(folder: Path) -> list[Path]:
    """Write the generated files and return their paths."""
    texts = documentation(folder)
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    return list(texts)


def _pages() -> dict[str, type]:
    """Return heading -> settings below it, in the order of the page."""
    found = [measurement(name) for name in measurements()]
    attention = {name: attention_class(name).config_class for name in variants()}
    return {
        "`config.yaml`": ProjectConfig,
        "`runs.yaml`": RunsFile,
        "`runs.yaml`: `set`, and setups of a scale": RunSettings,
        "`artifacts/*.yaml`": ArtifactConfig,
        **{f"`options` of measurement `{one.name}`": one.options for one in found},
        **{f"`evaluations.yaml`: suite of kind `{x.name}`": x.suite for x in found if x.suite},
        "`datasets.yaml`": DatasetsFile,
        "`scales/*.yaml`": ScaleConfig,
        **{f"`timings` of measurement `{x.name}`": x.timing for x in found if x.timing},
        "`papers.yaml`": PapersFile,
        "`registry.yaml`": Registry,
        **{f"`model.attention` with variant `{name}`": kind for name, kind in attention.items()},
        **{f"`adapt` with method `{name}`": settings_class(name) for name in methods()},
    }

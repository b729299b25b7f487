"""config/README.md and the JSON Schemas, generated from the typed settings."""

import json
from pathlib import Path
from typing import Annotated, Any, Union

from pydantic import BaseModel, Field, create_model

from difftransformer.config.artifacts import ArtifactConfig
from difftransformer.config.base import setting
from difftransformer.config.data import DatasetConfig, SourceConfig, TokenizerConfig
from difftransformer.config.documentation import config_readme, config_schema
from difftransformer.config.measurements import measurement, measurements
from difftransformer.config.papers import PapersFile
from difftransformer.config.project import ProjectConfig, RunsFile, ScaleConfig
from difftransformer.config.run import RunSettings
from difftransformer.models.attention.registry import attention_class, variants
from difftransformer.provenance.atomic import write_text


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
file of `artifacts/` is a table or a figure with its rows, claims and published values.

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


def _pages() -> dict[str, type[BaseModel]]:
    places = {"artifact": "artifacts/*.yaml", "scale": "scales/*.yaml"}
    pages: dict[str, type[BaseModel]] = {}
    for name, model in files().items():
        if name == "evaluations":
            suites = {one: suite for one in measurements() if (suite := measurement(one).suite)}
            pages |= {f"`evaluations.yaml`: suite of kind `{one}`": suites[one] for one in suites}
            continue
        pages[f"`{places.get(name, f'{name}.yaml')}`"] = model
        if name == "runs":
            pages["`runs.yaml`: `set`, and setups of a scale"] = RunSettings
        if name == "artifact":
            for one in measurements():
                pages[f"`options` of measurement `{one}`"] = measurement(one).options
        if name == "scale":
            timings = {one: timing for one in measurements() if (timing := measurement(one).timing)}
            pages |= {f"`timings` of measurement `{one}`": kind for one, kind in timings.items()}
    for variant in variants():
        pages[f"`model.attention` with variant `{variant}`"] = attention_class(variant).config_class
    return pages

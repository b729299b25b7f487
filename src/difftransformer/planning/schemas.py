"""The JSON Schemas of the YAML files, generated from the typed settings."""

import json
from pathlib import Path
from typing import Annotated, Any, Union

from pydantic import BaseModel, Field, create_model

from difftransformer.config.artifacts import ArtifactConfig
from difftransformer.config.base import setting
from difftransformer.config.data import DatasetConfig, SourceConfig
from difftransformer.config.evaluations import evaluation, evaluations
from difftransformer.config.papers import PapersFile
from difftransformer.config.project import ProjectConfig, RunsFile
from difftransformer.config.registry import Registry
from difftransformer.config.run import RunSettings
from difftransformer.config.scale import ScaleConfig
from difftransformer.config.tokenizers import TokenizerConfig
from difftransformer.provenance.atomic import write_text

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _meaning(key: str) -> str | None:
    return DatasetConfig.model_fields[key].description


class DatasetEntry(DatasetConfig):
    """A dataset as written in datasets.yaml: settings that its base gives may be left out."""

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
    """``config/datasets.yaml``: training corpora by name."""

    datasets: dict[str, DatasetEntry] = setting(meaning="Corpora by name")


def schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schema of each kind of YAML file by name, for completion in editors."""
    kinds = tuple(kind for name in evaluations() if (kind := evaluation(name).suite))
    suite: Any = Annotated[Union[kinds], Field(discriminator="kind")]  # noqa: UP007
    evaluations_file = create_model(
        "EvaluationsFile",
        __doc__="``config/evaluations.yaml``: what is measured on a trained model.",
        suites=(dict[str, suite], setting(meaning="Suites by name")),
    )
    models: dict[str, type[BaseModel]] = {
        "config": ProjectConfig,
        "runs": RunsFile,
        "artifact": ArtifactConfig,
        "evaluations": evaluations_file,
        "datasets": DatasetsFile,
        "scale": ScaleConfig,
        "papers": PapersFile,
        "registry": Registry,
        "run_settings": RunSettings,
    }
    return {
        name: {"$schema": _DIALECT, **model.model_json_schema(), "title": name}
        for name, model in models.items()
    }


def write_schemas(folder: Path) -> list[Path]:
    """Write the JSON Schemas to ``folder``/schema and return the paths of the files.

    Args:
        folder: The configuration folder.
    """
    texts = {
        folder / "schema" / f"{name}.schema.json": json.dumps(schema, indent=2) + "\n"
        for name, schema in schemas().items()
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    return list(texts)

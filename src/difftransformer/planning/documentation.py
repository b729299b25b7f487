"""config/README.md and the JSON Schemas, generated from the typed settings."""

import json
from pathlib import Path

from pydantic import BaseModel

from difftransformer.config.artifacts import ArtifactsFile, ClaimsFile
from difftransformer.config.base import setting
from difftransformer.config.data import DatasetConfig, SourceConfig, TokenizerConfig
from difftransformer.config.documentation import config_readme, config_schema
from difftransformer.config.evaluation import SuiteConfig
from difftransformer.config.paper_values import PaperFile
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

    datasets: dict[str, DatasetEntry]


class EvaluationsFile(BaseModel):
    """``config/evaluations.yaml``: what is measured on a trained model."""

    suites: dict[str, SuiteConfig]


FILES: dict[str, type[BaseModel]] = {
    "config": ProjectConfig,
    "runs": RunsFile,
    "scale": ScaleConfig,
    "datasets": DatasetsFile,
    "evaluations": EvaluationsFile,
    "artifacts": ArtifactsFile,
    "claims": ClaimsFile,
    "paper_values": PaperFile,
    "papers": PapersFile,
}
"""Name of a schema -> the model of the file that it describes."""


def documentation(folder: Path) -> dict[Path, str]:
    """Return the text of every generated file below the configuration folder."""
    schemas = config_schema({**FILES, "run_settings": RunSettings})
    texts = {
        folder / "schema" / f"{name}.schema.json": json.dumps(schema, indent=2) + "\n"
        for name, schema in schemas.items()
    }
    texts[folder / "README.md"] = config_readme(_pages())
    return texts


def write_documentation(folder: Path) -> list[Path]:
    """Write the generated files and return their paths."""
    texts = documentation(folder)
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    return list(texts)


def _pages() -> dict[str, type[BaseModel]]:
    pages = {f"{name}.yaml": model for name, model in FILES.items() if name != "scale"}
    pages["scales/*.yaml"] = ScaleConfig
    pages["runs.yaml: set, and setups of a scale"] = RunSettings
    for name in variants():
        pages[f"model.attention with variant {name}"] = attention_class(name).config_class
    return pages

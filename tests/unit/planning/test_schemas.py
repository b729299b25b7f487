"""JSON Schemas of the YAML files are current and accept the repository's files."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from difftransformer.planning.schemas import schemas


@pytest.fixture(scope="module")
def made() -> dict[str, dict[str, Any]]:
    return schemas()


def test_committed_schemas_are_current(made: dict[str, Any], repository: Path) -> None:
    folder = repository / "config" / "schema"
    assert {path.name for path in folder.iterdir()} == {f"{name}.schema.json" for name in made}
    for name, schema in made.items():
        text = (folder / f"{name}.schema.json").read_text()
        assert text == json.dumps(schema, indent=2) + "\n", f"{name} is stale: run `make schema`"


@pytest.mark.parametrize(
    "file", ["papers.yaml", "registry.yaml", "artifacts/table6.yaml", "scales/tiny.yaml"]
)
def test_a_schema_accepts_the_files_that_name_it_and_no_unknown_key(
    file: str, made: dict[str, Any], repository: Path
) -> None:
    text = (repository / "config" / file).read_text()
    content = yaml.safe_load(text)
    schema = made[text.partition("schema/")[2].partition(".")[0]]
    jsonschema.validate(content, schema)
    with pytest.raises(jsonschema.ValidationError, match="'unknown' was unexpected"):
        jsonschema.validate(content | {"unknown": 1}, schema)


def test_a_setting_has_its_unit_and_limits_in_the_schema(made: dict[str, Any]) -> None:
    training = made["run_settings"]["$defs"]["TrainingConfig"]
    assert training["additionalProperties"] is False
    assert training["properties"]["seq_len"]["unit"] == "tokens"
    assert training["properties"]["batch_size"]["exclusiveMinimum"] == 0

"""Arbitrary YAML and values give settings or a ConfigError, never another exception."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from difftransformer.config.data import DatasetConfig
from difftransformer.config.resolve import ConfigResolver
from difftransformer.config.run import RunSettings
from difftransformer.config.validation import validate, validate_part
from difftransformer.config.yaml_files import parse_value, read_yaml
from difftransformer.errors import ConfigError, UserError
from difftransformer.planning.plan import Plan

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.binary(max_size=3)
)
KEYS = st.sampled_from(
    ["model", "training", "attention", "lr", "betas", "steps", "d_model", "base", "label",
    "overrides",
     "recipe", "init_from", "variant", "probe", "sources", "kind", "tokenizer", "dataset"]
) | st.text(max_size=4)  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
OPTIONS = st.sampled_from(["scale", "seeds", "results", "tracking", "default_targets"])
YAML = st.text(alphabet="ab01:-.{}[]&*!|>'\"#\n \t,?<%@e_~", max_size=40) | st.text(max_size=20)


@settings(max_examples=150)
@given(YAML)
def test_any_text_is_yaml_or_our_error(text: str) -> None:
    try:
        parse_value(text, "some.yaml")
    except ConfigError as error:
        assert "\n" not in str(error)


@settings(max_examples=100)
@given(VALUES)
def test_any_value_is_settings_or_our_error(value: Any) -> None:
    for kind in (RunSettings, DatasetConfig):
        try:
            validate(kind, value, "place")
        except ConfigError as error:
            assert str(error).startswith("place: ")
        try:
            validate_part(kind, value, "place")
        except ConfigError as error:
            assert str(error).startswith("place: ")


@settings(max_examples=60)
@given(st.binary(max_size=30))
def test_any_bytes_are_a_slice_or_our_error(content: bytes) -> None:
    with pytest.raises(ConfigError):
        validate(RunSettings, content, "run.json")


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["spoilt", "diff"]),
    entry=st.dictionaries(KEYS, VALUES, max_size=2),
    changes=st.dictionaries(
        st.sampled_from(["model", "training"]), st.dictionaries(KEYS, VALUES, max_size=2)
    ),
    complete=st.booleans(),
)
def test_any_run_resolves_or_is_our_error(
    name: str,
    entry: dict[str, Any],
    changes: dict[str, Any],
    complete: bool,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from difftransformer.config import yaml_files

    def read(path: Path) -> dict[str, Any]:
        content = _read(path)
        if path.name == "runs.yaml":
            usable = {"label": "Spoilt", "base": "transformer"} if complete else {}
            return {"runs": content["runs"] | {name: usable | {"overrides": changes} | entry}}
        return content

    with monkeypatch.context() as patch:
        patch.setattr(yaml_files, "read_yaml", read)
        try:
            plan = Plan(ConfigResolver.load(repository / "config"))
            plan.jobs.run(name)
        except ConfigError as error:
            assert str(error)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(overrides=st.dictionaries(OPTIONS | KEYS, VALUES, max_size=2))
def test_any_override_is_a_plan_or_our_error(overrides: dict[str, Any], repository: Path) -> None:
    try:
        Plan.load(repository / "config", overrides)
    except UserError as error:
        assert "\n" not in str(error)


_CACHE: dict[Path, dict[str, Any]] = {}


def _read(path: Path) -> dict[str, Any]:
    if path not in _CACHE:
        _CACHE[path] = read_yaml(path)
    return _CACHE[path]

import importlib
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from difftransformer.errors import ConfigError
from difftransformer.models import attention
from difftransformer.models.attention import registry
from difftransformer.models.attention.registry import (
    attention_class,
    configure,
    deviation_from_paper,
    variants,
)


def test_heads_fill_d_model_by_default() -> None:
    softmax = configure({"variant": "softmax", "head_dim": 128}, 2048)
    halved = configure({"variant": "softmax", "head_dim": 128, "head_dim_multiplier": 2}, 2048)
    diff = configure({"variant": "diff_v1", "head_dim": 128}, 2048)
    actual = [(c.num_heads, c.num_kv_heads, c.head_dim) for c in (softmax, halved, diff)]
    assert actual == [(16, 16, 128), (8, 8, 256), (8, 8, 128)]  # DIFF paper, table 6
    assert halved.head_dim_multiplier == 1
    free = configure({"variant": "diff_v1", "head_dim": 128, "num_heads": 8}, 1536)
    assert free.num_heads == 8


@pytest.mark.parametrize("variant", variants())
def test_a_resolved_config_resolves_to_itself(variant: str) -> None:
    config = configure({"variant": variant, "head_dim": 8, "num_heads": 6, "num_kv_heads": 3}, 32)
    assert configure(asdict(config), 32) == config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_dim": 8}, "model.attention.variant: missing; choose one of softmax, diff_v1"),
        (
            {"variant": "dif_v1", "head_dim": 8},
            "model.attention.variant: unknown variant 'dif_v1'; did you mean 'diff_v1'?",
        ),
        (
            {"variant": "softmax", "head_dimm": 8},
            "model.attention: head_dimm: unknown key; did you mean 'head_dim'?",
        ),
        (
            {"variant": "softmax", "head_dim": 8, "lambda_init": 0.8},
            "model.attention: lambda_init: unknown key",
        ),
        ({"variant": "softmax", "head_dim": "8"}, "model.attention: head_dim: "),
        ({"variant": "softmax", "head_dim": 5}, "multiple of 2"),
        (
            {"variant": "diff_v1", "head_dim": 10},
            "model.attention.head_dim: output heads of width 20 do not fill d_model 64; take a "
            "width that divides it (nearest: 8, 16, 32)",
        ),
        (
            {"variant": "softmax", "head_dim": 8, "num_heads": 8, "num_kv_heads": 3},
            "model.attention.num_kv_heads: 3 does not divide num_heads 8; nearest that do: 1, 2, 4",
        ),
        ({"variant": "softmax", "head_dim": 8, "num_heads": 0}, "num_heads: "),
        ({"variant": "diff_v1", "head_dim": 8, "lambda_init": "exp"}, "lambda_init: "),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configure(options, 64)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_name_the_location() -> None:
    with pytest.raises(ConfigError, match=r"^runs\.yaml: diff: attention\.num_kv_heads: 3 does"):
        options = {"variant": "softmax", "head_dim": 8, "num_heads": 8, "num_kv_heads": 3}
        configure(options, 64, location="runs.yaml: diff: attention")


def test_every_variant_has_its_registry_name() -> None:
    for name in variants():
        assert attention_class(name).__module__ == f"difftransformer.models.attention.{name}"


def test_the_file_of_a_variant_is_imported_only_when_selected() -> None:
    program = (
        "import sys; from difftransformer.models import transformer\n"
        "from difftransformer.models.attention import registry\n"
        "files = {f'difftransformer.models.attention.{name}' for name in registry.variants()}\n"
        "assert not files & set(sys.modules), 'imported by the registry'\n"
        "registry.configure({'variant': 'diff_v1', 'head_dim': 8}, 64)\n"
        "assert files & set(sys.modules) == {'difftransformer.models.attention.diff_v1'}\n"
        "assert 'transformers' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def register(location: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a line for the variant `gain`, whose file may be in a folder."""
    monkeypatch.setattr(attention, "__path__", [*attention.__path__, str(folder)])
    monkeypatch.setitem(registry._VARIANTS, "gain", registry.Variant(location))
    monkeypatch.delitem(sys.modules, f"{attention.__name__}.gain", raising=False)
    importlib.invalidate_caches()


VALID_CLASS = """
class GainAttention:
    config_class = None
"""


@pytest.mark.parametrize(
    ("location", "file", "message"),
    [
        ("gain:GainAttention", None, "registry.py: gain: there is no gain.py beside it; write it"),
        (
            "gain:GainAtention",
            VALID_CLASS,
            "class of gain.py 'GainAtention'; did you mean 'GainAttenti",
        ),
        (
            "gain:GainAttention",
            VALID_CLASS.replace("config_", "my_"),
            "not an Attention with a config_class",
        ),
        ("gain:GainAttention", "class GainAttention(:\n", "gain.py:1: not valid Python: "),
    ],
)
def test_registry_entry_without_its_class_raises_a_one_line_error(
    location: str, file: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if file is not None:
        (tmp_path / "gain.py").write_text(file)
    register(location, tmp_path, monkeypatch)
    with pytest.raises(ConfigError) as caught:
        attention_class("gain")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_import_errors_within_a_variant_are_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gain.py").write_text("import nowhere_to_be_found\n")
    register("gain:GainAttention", tmp_path, monkeypatch)
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        attention_class("gain")


def test_deviations_from_the_paper_are_documented() -> None:
    deviating = {name for name in variants() if deviation_from_paper(name)}
    assert deviating == {"dint", "shared_diff", "tda", "grouped_diff", "dex_s"}
    for name in variants():
        docstring = sys.modules[attention_class(name).__module__].__doc__ or ""
        assert ("Deviation from the paper" in docstring) == (name in deviating), name

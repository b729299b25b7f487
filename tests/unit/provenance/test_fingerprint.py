import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from difftransformer.config.base import Settings
from difftransformer.errors import ConfigError
from difftransformer.models.attention import registry
from difftransformer.provenance.fingerprint import (
    code_fingerprint,
    config_fingerprint,
    import_closure,
    job_fingerprint,
    modules_digest,
)

ENTRY = "difftransformer.training.pretrain"
SOFTMAX = "difftransformer.models.attention.softmax:SoftmaxAttention"
DIFF = "difftransformer.models.attention.diff_v1:DiffAttention"
SOURCES = {
    "__init__.py": '"""The package."""\nfrom difftransformer.quiet import silence_loggers\n',
    "quiet.py": "def silence_loggers(): pass\n",
    "errors.py": 'class UserError(Exception):\n    """Text."""\n',
    "config/__init__.py": "",
    "config/base.py": (
        "def setting(default, **k): return default\n"
        'lr = setting(1, meaning="rate", unit="x", source="3.1", gt=0)\n'
    ),
    "provenance/__init__.py": "",
    "provenance/atomic.py": "def write(): return 1\n",
    "tracking/tracker.py": "class Tracker: pass\n",
    "models/__init__.py": "",
    "models/transformer.py": (
        "from difftransformer.models.attention import registry\n"
        "from difftransformer.models.attention.registry import build\n"
    ),
    "models/loss.py": "def loss(x):\n    return x\n",
    "models/attention/__init__.py": "from .softmax import SoftmaxAttention\n",
    "models/attention/base.py": "class Attention: pass\n",
    "models/attention/norms.py": "eps = 1\n",
    "models/attention/registry.py": (
        "from difftransformer.models.attention.base import Attention\n"
        f'VARIANTS = {{"softmax": "{SOFTMAX}", "diff_v1": "{DIFF}"}}\n'
        "def build(name): return VARIANTS[name]\n"
    ),
    "models/attention/softmax.py": "from .base import Attention\nclass SoftmaxAttention: pass\n",
    "models/attention/diff_v1.py": (
        "from difftransformer.models.attention import norms\nclass DiffAttention: pass\n"
    ),
    "evaluation/__init__.py": "",
    "evaluation/slices.py": "x = 1\n",
    "training/__init__.py": "",
    "training/trainer.py": "def train():\n    from ..models.loss import loss\n    return loss\n",
    "training/pretrain.py": (
        '"""Pretrain."""\n'
        "from __future__ import annotations\n"
        "from typing import TYPE_CHECKING\n"
        "import os, torch\n"
        "from difftransformer.models.transformer import Transformer\n"
        "from difftransformer.provenance import atomic\n"
        "from difftransformer.tracking.tracker import Tracker\n"
        "from difftransformer.config.base import lr\n"
        "from difftransformer.errors import UserError\n"
        "from . import trainer\n"
        "if TYPE_CHECKING:\n    from difftransformer.evaluation.slices import x\n"
        "if TYPE_CHECKING:\n    small = 1\nelse:\n    small = 2\n"
        "def pretrain(a):\n    'Doc.'\n    return a + 1\n"
    ),
}
Edit = Callable[[str], str]


@pytest.fixture
def fingerprints(tmp_path: Path) -> Callable[..., dict[str, str]]:
    count = 0

    def measure(file: str = "", edit: Edit = str) -> dict[str, str]:
        nonlocal count
        count += 1  # a new folder each time: results are cached for the life of a process
        root = tmp_path / str(count)
        for name, text in SOURCES.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(edit(text) if name == file else text)
        return {
            "bare": code_fingerprint(ENTRY, root=root),
            "softmax": code_fingerprint(ENTRY, [SOFTMAX], root=root),
            "diff": code_fingerprint(f"{ENTRY}:pretrain", [DIFF], root=root),
        }

    return measure


def append(text: str) -> Edit:
    return lambda source: source + text


SILENT: list[tuple[str, Edit]] = [
    ("training/pretrain.py", append("\n# a comment\n\n")),
    ("training/pretrain.py", lambda source: source.replace("'Doc.'", "'Another text.'")),
    ("training/pretrain.py", lambda source: source.replace('"""Pretrain."""', '"""P."""')),
    ("training/pretrain.py", lambda source: source.replace("a + 1", "(a  +  1)")),
    ("errors.py", lambda source: source.replace("Text", "Words")),
    ("models/attention/norms.py", append('"""Added to the variance."""\n')),
    ("config/base.py", lambda source: source.replace('meaning="rate"', 'meaning="the rate"')),
    ("config/base.py", lambda source: source.replace("gt=0", "ge=1")),
    ("tracking/tracker.py", append("y = 2\n")),
    ("evaluation/slices.py", append("y = 2\n")),
    ("quiet.py", append("y = 2\n")),
    (
        "training/pretrain.py",
        lambda source: source.replace("slices import x", "slices import x, y"),
    ),
    (
        "models/attention/registry.py",
        lambda source: source.replace("VARIANTS = {", 'VARIANTS = {"new": "mine:New", '),
    ),
]
LOUD = [
    "__init__.py",
    "errors.py",
    "config/base.py",
    "provenance/atomic.py",
    "models/__init__.py",
    "models/loss.py",
    "models/transformer.py",
    "models/attention/__init__.py",
    "models/attention/base.py",
    "models/attention/registry.py",
    "training/trainer.py",
    "training/pretrain.py",
]


@pytest.mark.parametrize(("file", "edit"), SILENT)
def test_words_and_observers_change_nothing(
    fingerprints: Callable[..., dict[str, str]], file: str, edit: Edit
) -> None:
    assert fingerprints(file, edit) == fingerprints()


@pytest.mark.parametrize("file", LOUD)
def test_code_in_the_closure_changes_all(
    fingerprints: Callable[..., dict[str, str]], file: str
) -> None:
    before, after = fingerprints(), fingerprints(file, append("y = 2\n"))
    assert all(before[name] != after[name] for name in before)


@pytest.mark.parametrize(
    ("file", "touched"), [("softmax", {"softmax"}), ("diff_v1", {"diff"}), ("norms", {"diff"})]
)
def test_a_variant_changes_only_those_that_select_it(
    fingerprints: Callable[..., dict[str, str]], file: str, touched: set[str]
) -> None:
    before = fingerprints()
    after = fingerprints(f"models/attention/{file}.py", append("y = 2\n"))
    assert {name for name in before if before[name] != after[name]} == touched


def test_what_runs_where_no_types_are_checked_is_code(
    fingerprints: Callable[..., dict[str, str]],
) -> None:
    edited = fingerprints("training/pretrain.py", lambda source: source.replace("= 2", "= 3"))
    assert edited["bare"] != fingerprints()["bare"]


@pytest.mark.parametrize("module", ["difftransformer.training.nothing", "json", "difftransform"])
def test_unknown_module_is_named(module: str) -> None:
    with pytest.raises(ConfigError, match=f"module '{module}' is not in the package"):
        code_fingerprint(module)


def test_broken_source_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "broken.py").write_text("x = 1\ndef (:\n")
    with pytest.raises(ConfigError, match=r"broken\.py:2: not valid Python"):
        code_fingerprint("difftransformer.broken", root=tmp_path)


def test_this_package_is_read_quickly_and_without_importing(tmp_path: Path) -> None:
    source = Path(__file__).resolve().parents[3] / "src" / "difftransformer"
    shutil.copytree(source, tmp_path / "copy")  # so that nothing is cached
    started = time.process_time()
    closure = import_closure(["difftransformer.provenance.result"], tmp_path / "copy")
    assert time.process_time() - started < 2
    assert "difftransformer.config.base" in closure
    assert "difftransformer.provenance.environment" not in closure


class Example(Settings):
    a: int
    b: dict[str, float]


def test_modules_alone_are_their_code(tmp_path: Path) -> None:
    package, loss = "difftransformer.models", "difftransformer.models.loss"

    def digest(*names: str, **files: str) -> str:
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        (root / "models").mkdir(parents=True)
        for name, text in ({"__init__": "", "loss": "from . import norms\n"} | files).items():
            (root / "models" / f"{name}.py").write_text(text)
        (root / "models/table.json").write_text(str(root))  # another each time
        return modules_digest(names, root=root)

    same = digest(package, loss)
    assert same == digest(loss, package) != digest(loss)
    assert same == digest(package, loss, norms="x = 1", loss='"""Text."""\nfrom . import norms # x')
    assert same != digest(package, loss, loss="from . import norms as n\n")


def test_the_digest_is_the_same_for_every_python(tmp_path: Path) -> None:
    """What was measured on one machine is looked up on others."""
    (tmp_path / "__init__.py").touch()
    (tmp_path / "errors.py").write_text(
        "class E(Exception):\n    def f(self, *, x: int = 1) -> str:\n        return f'{x:.3f}!'\n"
        "async def g():\n    pass\n"
    )
    digest = modules_digest(["difftransformer.errors"], root=tmp_path)
    assert digest == "7265724ad9d2b1d77395590ee3bb55b3deecdfcec9f449be3810436d420674fe"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_order_of_keys_does_not_matter(values: dict[str, object]) -> None:
    assert config_fingerprint(values) == config_fingerprint(dict(reversed(values.items())))


def test_models_and_their_json_are_the_same_slice() -> None:
    model = Example(a=1, b={"x": 2.0})
    assert config_fingerprint(model) == config_fingerprint({"b": {"x": 2.0}, "a": 1})
    assert config_fingerprint(model) != config_fingerprint({"b": {"x": 2.5}, "a": 1})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_without_json_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        config_fingerprint({"x": value})


def test_each_part_of_a_job_counts() -> None:
    base = ("pretrain", {"lr": 1}, "code", "data", 0)
    others = [
        ("adapt", *base[1:]),
        (base[0], {"lr": 2}, *base[2:]),
        (*base[:2], "c", *base[3:]),
        (*base[:3], "d", 0),
        (*base[:4], 1),
        (*base[:4], None),
    ]
    assert len({job_fingerprint(*parts) for parts in [base, *others]}) == 7


PACKAGE_FILES = Path(registry.__file__).parents[2]


def copy_of_ours(folder: Path) -> Path:
    return Path(
        shutil.copytree(PACKAGE_FILES, folder, ignore=shutil.ignore_patterns("__pycache__"))
    )


def test_a_new_and_an_edited_method_of_ours_touch_no_other(tmp_path: Path) -> None:
    root = copy_of_ours(tmp_path / "one")
    method = "difftransformer.training.methods."
    full = code_fingerprint(ENTRY, [f"{method}full"], root=root)
    shutil.copy(root / "training/methods/full.py", root / "training/methods/other.py")
    other = code_fingerprint(ENTRY, [f"{method}other"], root=root)
    edited = copy_of_ours(tmp_path / "two")
    source = (root / "training/methods/full.py").read_text()
    (edited / "training/methods/other.py").write_text(source + "\nADDED = 1\n")
    assert code_fingerprint(ENTRY, [f"{method}full"], root=edited) == full
    assert code_fingerprint(ENTRY, [f"{method}other"], root=edited) != other


def test_a_measured_table_of_a_package_is_code_of_it(tmp_path: Path) -> None:
    root = copy_of_ours(tmp_path / "ours")
    before = code_fingerprint(ENTRY, root=root)
    table = root / "models/kernels/fused/measured.json"
    table.write_text(table.read_text() + "\n")
    fresh = Path(shutil.copytree(root, tmp_path / "fresh"))  # each is read once a process
    assert code_fingerprint(ENTRY, root=fresh) != before


def test_a_new_line_and_an_edited_variant_of_ours_touch_no_other(tmp_path: Path) -> None:
    """The real registry and variants, copied: what V2 and its rivals would be trained again for."""
    locations = {name: registry.variant_location(name) for name in registry.variants()}

    def measure(root: Path) -> dict[str, str]:
        return {
            name: code_fingerprint(ENTRY, [location], root=root)
            for name, location in locations.items()
        }

    def edited(folder: str, file: str, old: str, new: str) -> dict[str, str]:
        root = copy_of_ours(tmp_path / folder)
        path = root / "models" / "attention" / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))
        return measure(root)

    before = measure(PACKAGE_FILES)
    line = '_VARIANTS = {\n    "mine": Variant("mine:Mine", "all"),'
    assert edited("line", "registry.py", "_VARIANTS = {", line) == before
    after = edited("v2", "diff_v2.py", "transpose(1, 2) * map2", "transpose(1, 2) + map2")
    assert {name for name in locations if before[name] != after[name]} == {"diff_v2"}

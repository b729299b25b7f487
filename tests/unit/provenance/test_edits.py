"""Edits of the real sources, and the jobs that each reruns."""

import ast
import shutil
from pathlib import Path

import pytest

import difftransformer
from difftransformer.models.attention.registry import variant_location
from difftransformer.planning.jobs import ENTRIES
from difftransformer.provenance.fingerprint import code_fingerprint
from difftransformer.provenance.syntax import dumped, numeric_tree

SOURCES = Path(difftransformer.__file__).parent
VARIANTS = ("diff_v1", "softmax")
Codes = dict[str, str]


def codes(root: Path) -> Codes:
    """Fingerprints of trainings by variant and device, and of making tokens."""
    found = {
        f"{variant} on {device}": code_fingerprint(
            ENTRIES["pretrain"], [variant_location(variant)], on_gpu=device == "cuda", root=root
        )
        for variant in VARIANTS
        for device in ("cpu", "cuda")
    }
    return found | {"tokenize": code_fingerprint(ENTRIES["tokenize"], on_gpu=False, root=root)}


@pytest.fixture(scope="module")
def before() -> Codes:
    return codes(SOURCES)


TRAININGS = {f"{variant} on {device}" for variant in VARIANTS for device in ("cpu", "cuda")}
ON_GPU = {name for name in TRAININGS if name.endswith("cuda")}
V1 = {name for name in TRAININGS if name.startswith("diff_v1")}
ALL = TRAININGS | {"tokenize"}
NOTHING: set[str] = set()

EDITS: list[tuple[str, str, str, set[str]]] = [
    # texts and bounds
    ("machine/gpus.py", " GPUs are asked for and ", " GPUs are wanted and ", NOTHING),
    ("machine/gpus.py", '"computing on GPU', '"running on GPU', NOTHING),
    ("models/kernels/fused/__init__.py", "takes one lambda for", "needs one lambda for", NOTHING),
    ("models/rotary.py", '"""', '"""Words. ', NOTHING),
    ("models/loss.py", "import torch\n", "import torch  # for tensors\n", NOTHING),
    ("training/process.py", "is bf16 but", "is bfloat16 but", NOTHING),
    ("training/process.py", "slower than fp32 without", "slow without", NOTHING),
    ("training/process.py", "threads: int) -> bool:", 'threads: "int") -> "bool":', NOTHING),
    ("config/training.py", "gt=0", "ge=1", NOTHING),
    ("config/training.py", 'meaning="', 'meaning="Words. ', NOTHING),
    ("tracking/tracker.py", "import", "import sys\nimport", NOTHING),
    # code for GPUs
    ("machine/gpus.py", "_PAUSE = 1.0", "_PAUSE = 2.0", ON_GPU),
    ("models/kernels/fused/hazards.py", ": in a branch", ": within a branch", ON_GPU),
    ("models/kernels/by_card.py", "_ALIGNED = 16", "_ALIGNED = 32", ON_GPU),
    ("models/kernels/fused/backward_keys.py", "PAIR: tl.constexpr", "PAIR: tl.int32", ON_GPU),
    ("models/kernels/fused/__init__.py", "NEEDED = (8, 0)", "NEEDED = (9, 0)", ON_GPU),
    # numbers, conditions, data
    ("models/loss.py", " * ", " + ", TRAININGS),
    ("models/loss.py", "CACHED_LOGITS = 2**19", "CACHED_LOGITS = 2**18", TRAININGS),
    ("models/attention/diff_v1.py", "LAMBDA_STD = 0.1", "LAMBDA_STD = 0.2", V1),
    ("config/training.py", "        0.5, meaning=", "        0.6, meaning=", TRAININGS),
    ("models/rotary.py", "self.head_dim, 2, dtype", "self.head_dim, 4, dtype", TRAININGS),
    ("models/attention/diff_v1.py", "first - second +", "first + second +", V1),
    ("training/process.py", "_MMAP_MAX = -1, -3, -4", "_MMAP_MAX = -1, -3, -5", TRAININGS),
    ("training/process.py", "not torch.cuda.is_bf16", "torch.cuda.is_bf16", TRAININGS),
    ("training/process.py", '"training.device")', '"training.place")', TRAININGS),
    ("training/process.py", "        raise BackendError(", "        BackendError(", TRAININGS),
    ("config/training.py", 'device: Literal["auto", ', "device: Literal[", TRAININGS),
    ("errors.py", "class ", "ADDED = 1\n\n\nclass ", ALL),
]


@pytest.mark.parametrize(("file", "old", "new", "rerun"), EDITS)
def test_an_edit_reruns_what_it_can_change(
    tmp_path: Path, before: Codes, file: str, old: str, new: str, rerun: set[str]
) -> None:
    root = tmp_path / "copy"
    shutil.copytree(SOURCES, root, ignore=shutil.ignore_patterns("__pycache__"))
    source = (root / file).read_text()
    assert old in source, "the edit must be one"
    (root / file).write_text(source.replace(old, new, 1))
    after = codes(root)
    assert {name for name in before if before[name] != after[name]} == rerun


@pytest.mark.parametrize("decorator", ["@triton.jit", "@torch.library.custom_op('a::b')"])
def test_what_reads_annotations_keeps_those_of_its_variables(decorator: str) -> None:
    digests = []
    for annotation in ("tl.constexpr", "tl.int32"):
        source = f"{decorator}\ndef kernel(x):\n    size: {annotation} = 4\n    return size\n"
        digests.append(dumped(numeric_tree(ast.parse(source), source.encode())))
    assert digests[0] != digests[1]

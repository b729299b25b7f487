"""Edits of the real sources rerun the jobs whose code they change."""

import ast
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import difftransformer
from difftransformer.planning.plan import Plan
from difftransformer.provenance import fingerprint
from difftransformer.provenance.syntax import dumped, numeric_tree

SOURCES = Path(difftransformer.__file__).parent
ATTENTION, KERNELS, CORE = "models/attention", "models/kernels", "models"
TRAINING, METHODS, KIT = "training", "training/methods", "evaluation"
EVALUATIONS, REPORTS, CONFIG = "evaluations", "reporting", "config"
"""Folders of the package, the only place that names them here."""
ON_A_GPU = "diff_no_groupnorm"
"""A run whose settings ask for a GPU, by `overrides`."""

JOBS: dict[str, Callable[[Plan], str]] = {
    "tokenizer": lambda plan: plan.jobs.code("train_tokenizer"),
    "tokenize": lambda plan: plan.jobs.code("tokenize"),
    "n-grams": lambda plan: plan.jobs.code("count_ngrams"),
    "train softmax": lambda plan: plan.jobs.code("pretrain", "transformer"),
    "train V1": lambda plan: plan.jobs.code("pretrain", "diff"),
    "train V1 on GPU": lambda plan: plan.jobs.code("pretrain", ON_A_GPU),
    "extend V1": lambda plan: plan.jobs.code("extend_context", "long_diff"),
    "adapt by LoRA": lambda plan: plan.jobs.code("adapt", "adapted_lora"),
    "adapt by Dex": lambda plan: plan.jobs.code("adapt", "adapted_dex"),
    "evaluate loss of softmax": lambda plan: plan.jobs.code(
        "evaluate", "validation_slices", "transformer"
    ),
    "evaluate loss of V1": lambda plan: plan.jobs.code("evaluate", "validation_slices", "diff"),
    "evaluate recall of V1": lambda plan: plan.jobs.code("evaluate", "recall", "recall_diff"),
    "judge": lambda plan: plan.jobs.code("judge_answers", "lexical", "hallucination"),
    "time": lambda plan: plan.artifacts.timing_code("throughput"),
    "table of loss": lambda plan: plan.artifacts.code("table", "table6"),
    "figure of loss": lambda plan: plan.artifacts.code("figure", "table6"),
    "table of sinks": lambda plan: plan.artifacts.code("table", "v2_sinks"),
    "verdicts": lambda plan: plan.claims.code(),
    "report": lambda plan: plan.report_code(),
}


def jobs(*words: str) -> set[str]:
    """Jobs whose names have one of the words."""
    return {name for name in JOBS if any(word in name for word in words)}


DATA = jobs("token", "n-grams")
ADAPTED = jobs("adapt")
PRETRAINED = jobs("train", "extend")
TRAINED = PRETRAINED | ADAPTED
EVALUATED = jobs("evaluate")
ON_GPU = jobs("on GPU")
COMPUTED = TRAINED | EVALUATED | jobs("time")
"""All that compute with a model."""
PREPARED = TRAINED | jobs("time")
"""Those whose process `training.process` prepares, or whose memory it keeps."""
WITH_JUDGE = COMPUTED | jobs("judge")
"""Judging imports what answers are read by, and with it the model."""
NOTHING: set[str] = set()
ADDED = ("", "ADDED = 1\n")
"""Puts a statement before all others."""


@pytest.fixture(scope="module")
def plan(repository: Path) -> Plan:
    """Scale smoke, one of whose runs asks for a GPU."""
    settings = {ON_A_GPU: {"training": {"device": "cuda"}}}
    return Plan.load(repository / "config", {"scale": "smoke", "overrides": settings})


@pytest.fixture(scope="module")
def before(plan: Plan) -> dict[str, str]:
    return {name: code(plan) for name, code in JOBS.items()}


EDITS: list[tuple[str, str, str, set[str]]] = [
    # texts and bounds
    ("machine/gpus.py", " GPUs are requested and ", " GPUs are wanted and ", NOTHING),
    ("machine/gpus.py", '"computing on GPU', '"running on GPU', NOTHING),
    (f"{KERNELS}/fused/__init__.py", "takes one lambda for", "needs one lambda for", NOTHING),
    (f"{CORE}/rotary.py", '"""', '"""Words. ', NOTHING),
    (f"{CORE}/loss.py", "import torch\n", "import torch  # for tensors\n", NOTHING),
    (f"{TRAINING}/process.py", "is bf16 but", "is bfloat16 but", NOTHING),
    (f"{TRAINING}/process.py", "slower than fp32 without", "slow without", NOTHING),
    (f"{TRAINING}/process.py", "threads: int) -> bool:", 'threads: "int") -> "bool":', NOTHING),
    (f"{CONFIG}/training.py", "gt=0", "ge=1", NOTHING),
    (f"{CONFIG}/training.py", 'meaning="', 'meaning="Words. ', NOTHING),
    ("tracking/tracker.py", "import", "import sys\nimport", NOTHING),
    (f"{ATTENTION}/diff_v1.py", 'meaning="lambda_init of', 'meaning="Lambda_init of', NOTHING),
    (f"{ATTENTION}/diff_v1.py", "below=1,", "below=0.9,", NOTHING),
    (f"{ATTENTION}/registry.py", "_VARIANTS = {", '_VARIANTS = {"x": Variant("x:X"),', NOTHING),
    # code for GPUs
    ("machine/gpus.py", "_POLL_SECONDS = 1.0", "_POLL_SECONDS = 2.0", ON_GPU),
    (f"{KERNELS}/fused/hazards.py", ": in a branch", ": within a branch", ON_GPU),
    (f"{KERNELS}/fused/backward_keys.py", "PAIR: tl.constexpr", "PAIR: tl.int32", ON_GPU),
    (f"{KERNELS}/fused/__init__.py", "NEEDED = (8, 0)", "NEEDED = (9, 0)", ON_GPU),
    (f"{KERNELS}/flash/__init__.py", *ADDED, ON_GPU),
    # numbers, conditions, data
    (f"{CORE}/loss.py", " * ", " + ", WITH_JUDGE),
    (f"{CORE}/loss.py", "CACHED_LOGITS = 2**19", "CACHED_LOGITS = 2**18", WITH_JUDGE),
    (f"{CORE}/rotary.py", "self.head_dim, 2, dtype", "self.head_dim, 4, dtype", WITH_JUDGE),
    (f"{KERNELS}/blocked.py", *ADDED, WITH_JUDGE),
    (
        f"{KERNELS}/cpu_dispatch.py",
        "QUERIES, MAX_KEYS = 256",
        "QUERIES, MAX_KEYS = 128",
        WITH_JUDGE,
    ),
    (f"{ATTENTION}/diff_v1.py", "LAMBDA_STD = 0.1", "LAMBDA_STD = 0.2", jobs("V1", "time")),
    (f"{ATTENTION}/diff_v1.py", "lambda_1 - lambda_2", "lambda_1 + lambda_2", jobs("V1", "time")),
    (f"{ATTENTION}/diff_v1.py", '"exponential",\n', "0.5,\n", jobs("V1", "time")),
    (f"{ATTENTION}/softmax.py", *ADDED, jobs("softmax", "adapt", "time")),
    (f"{CONFIG}/training.py", "        (0.9, 0.95),", "        (0.8, 0.95),", set(JOBS) - DATA),
    (f"{CONFIG}/training.py", 'device: Literal["auto", ', "device: Literal[", set(JOBS) - DATA),
    (f"{TRAINING}/process.py", "_MMAP_MAX = -1, -3, -4", "_MMAP_MAX = -1, -3, -5", PREPARED),
    (f"{TRAINING}/process.py", "not torch.cuda.is_bf16", "torch.cuda.is_bf16", PREPARED),
    (f"{TRAINING}/process.py", '"training.device")', '"training.place")', PREPARED),
    (f"{TRAINING}/process.py", "        raise BackendError(", "        BackendError(", PREPARED),
    (f"{TRAINING}/trainer.py", *ADDED, TRAINED),
    (f"{TRAINING}/pretrain.py", *ADDED, PRETRAINED),
    (f"{TRAINING}/adapt.py", *ADDED, ADAPTED),
    (f"{METHODS}/lora.py", "r=rank", "r=rank + 1", jobs("LoRA")),
    (f"{METHODS}/dex.py", *ADDED, ADAPTED),
    (f"{METHODS}/galore.py", "0.25, meaning", "0.5, meaning", NOTHING),
    ("data/tokenize.py", *ADDED, {"tokenize"}),
    ("data/ngrams.py", *ADDED, jobs("n-grams", "evaluate loss") | {"tokenize"}),
    ("data/loader.py", *ADDED, WITH_JUDGE - jobs("time")),
    (f"{KIT}/scorer.py", *ADDED, EVALUATED | jobs("judge")),
    (f"{EVALUATIONS}/recall/measure.py", *ADDED, jobs("recall")),
    (f"{EVALUATIONS}/recall/settings.py", *ADDED, jobs("recall", "verdicts")),
    (f"{EVALUATIONS}/recall/report.py", *ADDED, jobs("verdicts")),
    (f"{EVALUATIONS}/hallucination/judge.py", *ADDED, jobs("judge")),
    (f"{EVALUATIONS}/throughput/measure.py", *ADDED, jobs("time")),
    (f"{REPORTS}/table_job.py", *ADDED, jobs("table", "report", "verdicts")),
    (f"{EVALUATIONS}/sinks/report.py", *ADDED, jobs("table of sinks")),
    (f"{EVALUATIONS}/validation_slices/report.py", *ADDED, jobs("of loss", "verdicts")),
    ("errors.py", *ADDED, set(JOBS)),
]


@pytest.mark.parametrize(("file", "old", "new", "rerun"), EDITS)
def test_an_edit_reruns_what_it_can_change(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plan: Plan,
    before: dict[str, str],
    file: str,
    old: str,
    new: str,
    rerun: set[str],
) -> None:
    root = tmp_path / "copy"
    shutil.copytree(SOURCES, root, ignore=shutil.ignore_patterns("__pycache__"))
    source = (root / file).read_text()
    assert old in source, "the edit must be one"
    (root / file).write_text(source.replace(old, new, 1))
    monkeypatch.setattr(fingerprint, "_ROOT", root)
    assert {name for name, code in JOBS.items() if code(plan) != before[name]} == rerun


@pytest.mark.parametrize("decorator", ["@triton.jit", "@torch.library.custom_op('a::b')"])
def test_what_reads_annotations_keeps_those_of_its_variables(decorator: str) -> None:
    digests = []
    for annotation in ("tl.constexpr", "tl.int32"):
        source = f"{decorator}\ndef kernel(x):\n    size: {annotation} = 4\n    return size\n"
        digests.append(dumped(numeric_tree(ast.parse(source), source.encode())))
    assert digests[0] != digests[1]

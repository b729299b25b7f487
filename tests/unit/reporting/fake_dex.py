"""Synthetic results that only the tables and figures of Dex read."""

import json
import random
from typing import Any

import numpy as np
import torch
from fake_adaptation import ABLATIONS, METHOD_SIZES, METHODS, losses
from fake_attention_maps import MAPS, attention_maps
from fake_configs import RESOLVER
from fake_curvature import curvature
from fake_head_features import HEADS, head_features
from fake_many_shot import many_shot_suite
from fake_needles import DEPTHS, needles_long
from fake_understanding import understanding
from fake_v2 import sinks
from safetensors.torch import save_file

from difftransformer.evaluations.effective_attention.settings import (
    KINDS,
    answer_name,
    negative_name,
)
from difftransformer.evaluations.sentences.sentences import SENTENCES
from difftransformer.evaluations.sentences.settings import DISTRACTOR, OTHER, RELEVANT, share_metric

WAYS = ("lora", "full", "kvo", "dex")
TUNED = (
    *(f"adapted_tuned_{way}" for way in WAYS),
    *(f"tuned_by_{way}" for way in WAYS[:1] + WAYS[2:]),
)
BY_TOKENS = ("adapted_lora", "adapted_kvo", "adapted_dex")
DEX_TASKS = tuple(RESOLVER.suite("language_understanding_dex").tasks)
SIX = ("mmlu", "arc_challenge", "ifeval", "mbpp_plus", "gsm8k", "agieval_en")


def results_of_dex(fake: Any, seed: int) -> None:
    """Everything of one seed that no other paper's tables read."""
    for run in HEADS:
        head_features(fake, run, seed)
    for run in MAPS:
        attention_maps(fake, run, seed)
    for run in ("transformer", "diff"):
        _open(fake, run, seed)
    fake.training("dex_s", seed, {"validation_loss": 3.85})
    for run in ("transformer", "diff"):
        sentences(fake, run, seed)
    _by_tokens(fake, seed)
    _further(fake, seed)
    for run in ("transformer", "diff", "dex_s", *METHODS, *ABLATIONS):
        _eleven(fake, run, seed)


def _open(fake: Any, run: str, seed: int) -> None:
    """What is measured of pretrained models as well."""
    attention_maps(fake, run, seed, suite="attention_maps_open")
    head_features(fake, run, seed, suite="head_features_open")
    sinks(fake, run, seed, suite="sinks_open")
    sentences(fake, run, seed, suite="sentences_open")
    effective_attention(fake, f"long_{run}", seed, suite="effective_attention_open")
    curvature(fake, run, seed, suite="curvature_open", phases={})


def _eleven(fake: Any, run: str, seed: int) -> None:
    understanding(fake, run, seed, 0, tasks=DEX_TASKS, suite="language_understanding_dex")


def _by_tokens(fake: Any, seed: int) -> None:
    for row in BY_TOKENS:
        for index, run in enumerate(RESOLVER.members(row, "adaptation_tokens")):
            if run != row:
                steps = {"validation_loss": 1.6, "tokens": 15_000 * 2**index}
                fake.training(run, seed, steps | METHOD_SIZES)
                losses(fake, run, seed, 2.5 - 0.3 * index, 3.8 + 0.1 * index)
                _eleven(fake, run, seed)


def _further(fake: Any, seed: int) -> None:
    """Adapted at length, on labeled items, and on worked answers."""
    effective_attention(fake, "long_recall_transformer", seed)
    for way in WAYS:
        long, items = f"adapted_long_{way}", f"adapted_icl_{way}"
        for run in (long, items):
            fake.training(run, seed, {"validation_loss": 1.0} | METHOD_SIZES)
        needles_long(fake, long, "transformer", seed)
        effective_attention(fake, long, seed)
    for run in ("icl_transformer", *(f"adapted_icl_{way}" for way in WAYS)):
        for task in ("trec", "banking77", "clinic150"):
            many_shot_suite(
                fake, run, seed, f"icl_{task}_any", task, [1, 5, 24], "random", 1, "random"
            )
    for index, run in enumerate(("math_transformer", *TUNED)):
        if run in TUNED:
            fake.training(run, seed, {"validation_loss": 1.6} | METHOD_SIZES)
        understanding(fake, run, seed, 0, tasks=SIX, suite="instruction_tuning")
        losses(fake, run, seed, 2.5 - 0.1 * index, 3.8, target_suite="adaptation_worked")


def effective_attention(fake: Any, run: str, seed: int, suite: str = "effective_attention") -> None:
    """Write the result of one run."""
    noise = random.Random(f"effective{run}{seed}")
    metrics: dict[str, float] = {"prompts": 250}
    for kind in KINDS:
        metrics |= {answer_name(kind, d): 0.1 + 0.02 * noise.random() for d in (None, *DEPTHS)}
        metrics[negative_name(kind)] = 0.0 if kind == "weights" else 0.4
    config = {
        "kind": "effective_attention", "format": "recall", "depths": list(DEPTHS), "samples": 50,
        "needles": 8, "steps": 100,
    }  # fmt: skip
    fake.evaluation(run, seed, suite, metrics, config)


def sentences(fake: Any, run: str, seed: int, suite: str = "sentences") -> None:
    """Write the result of one run, with rows and tokens beside it."""
    draw = np.random.default_rng([len(run), seed])
    details = fake.root / f"evaluations/{suite}/{run}/{seed}"
    details.mkdir(parents=True, exist_ok=True)
    tokens = ["<eos>", "one", "two", "three", "four"]
    words = [OTHER, RELEVANT, OTHER, DISTRACTOR, OTHER]
    rows = {name: draw.normal(size=(2, 4, 5)).astype(np.float32) for name in SENTENCES}
    save_file(
        {name: torch.from_numpy(array) for name, array in rows.items()},
        details / "rows.safetensors",
    )
    maps = {name: np.tril(draw.normal(size=(2, 4, 5, 5))).astype(np.float16) for name in SENTENCES}
    save_file(
        {name: torch.from_numpy(array) for name, array in maps.items()},
        details / "maps.safetensors",
    )
    labels = {name: {"tokens": tokens, "words": words} for name in SENTENCES}
    (details / "tokens.json").write_text(json.dumps(labels))
    metrics = {
        share_metric(name, word, lowest=lowest): -0.2 if lowest else 0.1
        for name in SENTENCES
        for word in (RELEVANT, DISTRACTOR)
        for lowest in (False, True)
    }
    fake.evaluation(run, seed, suite, metrics, {"kind": "sentences"})

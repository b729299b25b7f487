"""Answering items behind one many-shot prompt, against each item alone and every label alone.

    python benchmarks/many_shot.py [--demonstrations 32 128 512] [--items 16]

A fresh model of tiny scale (2 layers, 128 wide) reads generated demonstrations of 8 classes and
answers items among their labels in three ways: items share the keys and values of the prompt; each
item computes the prompt anew; each label of each item is scored by a pass of its own without any
cache. All three give the same answers; the CPU time differs. The last two are timed on a few items.
"""

import argparse
from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np
import torch

from difftransformer.config.generated_rows import ClassificationConfig
from difftransformer.data.classification import labeled_items
from difftransformer.evaluation.scorer import Scorer
from difftransformer.evaluations.many_shot.label_decoding import LabelDecoder, LabelTrie
from difftransformer.models.config import ModelConfig
from difftransformer.models.transformer import Transformer

VARIANTS = ("softmax", "diff_v1")
CLASSES = 8
FEW = 4


def every_label_alone(
    scorer: Scorer, labels: LabelTrie, prompt: list[int], items: list[list[int]]
) -> list[int]:
    """Answers by one whole pass for each label of each item."""
    answers = []
    for item in items:
        sums = []
        for path in labels.paths:
            targets = torch.tensor([[*prompt, *item, *path]])
            sums.append(float(-scorer.losses(targets, 8192)[0, -len(path) :].sum()))
        answers.append(sums.index(max(sums)))
    return answers


def each_alone(shared: LabelDecoder, prompt: list[int], items: list[list[int]]) -> list[int]:
    """Answers with the prompt computed anew for each item."""
    return [shared.answers(prompt, [item])[0] for item in items]


def timed(answer: Callable[..., list[int]], *arguments: Any) -> tuple[float, list[int]]:
    """CPU seconds and answers."""
    begun = process_time()
    answers = answer(*arguments)
    return process_time() - begun, answers


def main() -> None:
    """Print a table of milliseconds an item and speed-ups."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demonstrations", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--items", type=int, default=32)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = ClassificationConfig()
    print("| variant | demonstrations | items | shared ms | alone ms | labels alone ms "
          "| against alone | against labels alone |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for variant in VARIANTS:
        for number in arguments.demonstrations:
            config = ModelConfig(
                vocab_size=rows.vocab_size, d_model=128, num_layers=2, ffn_dim=384,
                max_positions=number * rows.item_length + rows.item_length,
                attention={"variant": variant, "head_dim": 32},
            )  # fmt: skip
            scorer = Scorer(
                Transformer.build(config, "cpu_dispatch", 0).eval(), torch.device("cpu")
            )
            drawn = np.arange(number + arguments.items)[None] % CLASSES
            examples = labeled_items(rows, drawn, np.random.default_rng(0))
            words, names = examples.words[0].tolist(), examples.labels[0].tolist()
            pairs = zip(words[:number], names[:number], strict=True)
            prompt = [token for text, label in pairs for token in (*text, label)]
            items = words[number:]
            labels = LabelTrie([(label,) for label in names[:CLASSES]], list(map(str, names)))
            shared = LabelDecoder(scorer, labels, 4096)
            shared.answers(prompt, items[:2])
            shared_seconds, first = timed(shared.answers, prompt, items)
            alone_seconds, second = timed(each_alone, shared, prompt, items[:FEW])
            labels_seconds, third = timed(every_label_alone, scorer, labels, prompt, items[:FEW])
            assert first[:FEW] == second == third
            each = [
                1000 * shared_seconds / len(items),
                1000 * alone_seconds / FEW,
                1000 * labels_seconds / FEW,
            ]
            print(
                f"| {variant} | {number} | {len(items)} | {each[0]:.2f} | {each[1]:.2f} "
                f"| {each[2]:.2f} | {each[1] / each[0]:.1f} | {each[2] / each[0]:.0f} |"
            )


if __name__ == "__main__":
    main()

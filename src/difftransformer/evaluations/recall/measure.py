"""Accuracy of key-value retrieval by the number of needles in a row.

Rows come from a random stream that no training split uses and are the same for every run. An answer
is the argmax over the whole vocabulary; queries of a row are teacher-forced.

Shapes: S = rows, R = queries of a row.
"""

import torch
from torch import Tensor

from difftransformer.config.generated_rows import RecallConfig
from difftransformer.data.recall import recall_batch
from difftransformer.evaluation.context import EvalContext, EvalResult, Metrics, per_item_scores
from difftransformer.evaluation.scorer import Scorer
from difftransformer.evaluations.recall.settings import ROWS_SEED, Suite, accuracy_metric


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Return accuracies of key-value retrieval by number of needles, and the counts behind them.

    Rows are generated from the settings of the recall dataset in ``context``; its own rows are not
    read.

    Returns:
        For each number of needles N: accuracy_n{N} = correct_n{N} / total_n{N} (R queries in
        each of S rows) and chance_n{N} = 1/N, the accuracy of guessing among the values of the
        row. Also chance_vocabulary = 1/V, the accuracy of guessing among all V tokens. Accuracies
        have per-item scores by row.

    Raises:
        DataError: A number of needles does not fit in a row.
    """
    settings = context.dataset.manifest.recall
    assert settings is not None, "see Suite.incompatibility"
    metrics: Metrics = {"chance_vocabulary": 1 / context.scorer.model.vocab_size}
    per_item = {}
    for needles in suite.needles:
        is_correct = _is_correct(suite, needles, context.scorer, settings)
        correct, answers = int(is_correct.sum()), is_correct.numel()
        metrics |= {
            accuracy_metric(needles): correct / answers,
            f"correct_n{needles}": correct,
            f"total_n{needles}": answers,
            f"chance_n{needles}": 1 / needles,
        }
        by_row = is_correct.double().mean(1).tolist()
        per_item[accuracy_metric(needles)] = per_item_scores("rows", by_row, item_set=f"n{needles}")
    return EvalResult(metrics, per_item)


def _is_correct(suite: Suite, needles: int, scorer: Scorer, settings: RecallConfig) -> Tensor:
    """Return whether each answer with N = ``needles`` is correct, bool [S, R]."""
    rows, positions = recall_batch(
        settings, needles=needles, queries=suite.queries, samples=suite.samples,
        seed=ROWS_SEED, haystack_length=suite.haystack_length,
    )  # fmt: skip
    inputs, answers = rows[:, :-1], rows[:, 1:][:, positions]
    size = suite.batch_size
    batches = zip(torch.split(inputs, size), torch.split(answers, size), strict=True)
    return torch.cat(
        [scorer.greedy_tokens(tokens, positions) == targets for tokens, targets in batches]
    )

"""Accuracy of key-value retrieval by the number of needles in a row.

Rows come from a random stream that no training split uses and are the same for every run, so runs
are compared on the same questions. The model answers with its first choice among the whole
vocabulary; queries of a row are teacher-forced.

Shapes: S = rows, R = queries of a row.
"""

import torch
from torch import Tensor

from difftransformer.config.generated_rows import RecallConfig
from difftransformer.data.recall import recall_batch
from difftransformer.evaluation.context import EvalContext, EvalResult, Metrics, per_item_scores
from difftransformer.evaluation.scorer import Scorer
from difftransformer.evaluations.recall.settings import ROWS_SEED, Suite, accuracy_name


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Accuracies with the counts behind them.

    Of the dataset of ``context``, a recall one, only the settings are used.

    Returns:
        For each N: accuracy_n{N}, correct_n{N} of samples_n{N} answers (S * R; the R answers of a
        row share its needles), and chance_n{N} = 1/N, a guess among the values in the row; beside
        them chance_vocabulary = 1/V, a guess among all tokens. Accuracies are known by row, too.

    Raises:
        DataError: A number of needles does not fit.
    """
    settings = context.dataset.manifest.recall
    assert settings is not None, "see Suite.incompatibility"
    metrics: Metrics = {"chance_vocabulary": 1 / context.scorer.model.vocab_size}
    per_item = {}
    for needles in suite.needles:
        right = _right(suite, needles, context.scorer, settings)
        correct, answers = int(right.sum()), right.numel()
        metrics |= {
            accuracy_name(needles): correct / answers,
            f"correct_n{needles}": correct,
            f"samples_n{needles}": answers,
            f"chance_n{needles}": 1 / needles,
        }
        by_row = right.double().mean(1).tolist()
        per_item[accuracy_name(needles)] = per_item_scores("rows", by_row, item_set=f"n{needles}")
    return EvalResult(metrics, per_item)


def _right(suite: Suite, needles: int, scorer: Scorer, settings: RecallConfig) -> Tensor:
    """Whether each answer is right at one number of needles, bool [S, R]."""
    rows, positions = recall_batch(
        settings, needles=needles, queries=suite.queries, samples=suite.samples,
        seed=ROWS_SEED, haystack_length=suite.haystack_length,
    )  # fmt: skip
    inputs, answers = rows[:, :-1], rows[:, 1:][:, positions]
    size = suite.batch_size
    batches = zip(torch.split(inputs, size), torch.split(answers, size), strict=True)
    return torch.cat([scorer.greedy_tokens(some, positions) == asked for some, asked in batches])

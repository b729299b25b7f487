"""Accuracy of key-value retrieval by the number of needles in a row.

Rows come from a random stream that no training split uses and are the same for every run, so runs
are compared on the same questions. The model answers with its first choice among the whole
vocabulary; queries of a row are teacher-forced.

Shapes: S = rows, R = queries of a row.
"""

from difftransformer.config.generated_rows import RecallConfig
from difftransformer.data.recall import recall_batch
from difftransformer.errors import ConfigError
from difftransformer.evaluation.scorer import Scorer
from difftransformer.evaluation.subject import Metrics, Subject
from difftransformer.measurements.recall.settings import Suite, accuracy_name


def measure(suite: Suite, subject: Subject) -> Metrics:
    """Accuracies with the counts behind them.

    Of the dataset of ``subject``, a recall one, only the settings are used.

    Returns:
        For each N: accuracy_n{N}, correct_n{N} of samples_n{N} answers (S * R; the R answers of a
        row share its needles), and chance_n{N} = 1/N, a guess among the values in the row; beside
        them chance_vocabulary = 1/V, a guess among all tokens.

    Raises:
        ConfigError: The dataset has no recall rows, or rows are longer than the model's context.
        DataError: A number of needles does not fit.
    """
    settings = subject.dataset.manifest.recall
    if settings is None:
        raise ConfigError(
            f"the recall suite needs a recall dataset, {subject.dataset.folder} has no recall "
            "rows: leave the suite out or train the run on one"
        )
    metrics: Metrics = {"chance_vocabulary": 1 / subject.scorer.vocab_size}
    for needles in suite.needles:
        correct, answers = _count(suite, needles, subject.scorer, settings)
        metrics |= {
            accuracy_name(needles): correct / answers,
            f"correct_n{needles}": correct,
            f"samples_n{needles}": answers,
            f"chance_n{needles}": 1 / needles,
        }
    return metrics


def _count(suite: Suite, needles: int, scorer: Scorer, settings: RecallConfig) -> tuple[int, int]:
    """Right answers and all answers at one number of needles."""
    rows, positions = recall_batch(
        settings, needles=needles, queries=suite.queries, samples=suite.samples,
        seed=suite.rows_seed, haystack_length=suite.haystack_length,
    )  # fmt: skip
    inputs, answers = rows[:, :-1], rows[:, 1:][:, positions]
    if inputs.shape[1] > scorer.max_positions:
        raise ConfigError(
            f"recall rows are {inputs.shape[1]} positions long, the model's context is "
            f"{scorer.max_positions}: lower haystack_length or queries"
        )
    correct = 0
    for start in range(0, len(rows), suite.batch_size):
        some = slice(start, start + suite.batch_size)
        correct += int((scorer.choices(inputs[some], positions) == answers[some]).sum())
    return correct, answers.numel()

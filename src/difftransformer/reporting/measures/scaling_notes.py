"""How scaling was measured, fitted and read, in words."""

from collections.abc import Sequence

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.config.scaling import ScalingConfig
from difftransformer.reporting.collect import Results, defined
from difftransformer.reporting.conditions import shared_setting, span, training_note, trainings
from difftransformer.reporting.numbers import count
from difftransformer.reporting.scaling_cells import BEYOND
from difftransformer.reporting.scaling_curves import COUNTS, Line, has_offset

_COUNTED = {
    "one_embedding": "all parameters but the vocabulary matrices, and one of these, as the "
    "published sizes do, so that tying them changes nothing",
    "non_embedding": "all parameters but the vocabulary matrices",
    "total": "all parameters",
}


def point_notes(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[str]:
    """Say what the points are."""
    assert part.scaling is not None
    trained = trainings(part.rows, artifact.seeds, results)
    if part.measures == "token_scaling":
        return [
            "Points are validation losses along one run for each seed. At all but the last the "
            "learning rate has not finished its decay, as in the paper's figure: a run that "
            "ended there would have a lower loss. Δ: paired difference over seeds at the same "
            "step.",
            training_note(part.rows, trained),
        ]
    pairs = [(row.run, seed) for row in part.rows for seed in artifact.seeds]
    measured = [results.evaluation(part.suites[0], run, seed) for run, seed in pairs]
    window = shared_setting(measured, "config", "seq_len")
    tokens = defined(measured[0], "tokens")
    budgets = sorted({defined(result, "tokens") for result in trained})
    counted = part.scaling.parameters
    return [
        f"The size of a model, the axis of the figure, counts {_COUNTED[counted]} "
        f"(column “{COUNTS[counted]}”).",
        f"Loss: cross-entropy in nats per token over {count(tokens)} held-out tokens in windows "
        f"of {window}. Δ: paired difference over seeds at the same shape.",
        f"Training: {span(budgets)} tokens a run, with the peak learning rate in the column lr.",
    ]


def curve_notes(part: SectionSlice, scaling: ScalingConfig, lines: Sequence[Line]) -> list[str]:
    """Say what was fitted, how it is read, and where the intervals come from."""
    form = (
        f"a x^−b + c with c ≥ 0, as there are {scaling.offset_from} points or more"
        if has_offset(len(lines[0].points), scaling)
        else f"a x^−b, without an offset c, as it takes {scaling.offset_from} points"
    )
    what = "size" if part.measures == "size_scaling" else "budget"
    notes = [
        f"Fit: loss = {form}; least squares in log loss, of the means over seeds.",
        f"Share needed: the loss of the fitted curve at a {what} x, and the {what} at which the "
        f"fitted curve of the row compared with has the same; their ratio. Each curve is read at "
        f"{scaling.read_at:.0%} of its largest {what}, about where the paper reads it. Nothing is "
        f"extrapolated: where the equal loss was not measured the cell says “{BEYOND}”.",
    ]
    if len(lines[0].points[0].seeds) > 1:
        notes.append(
            "In parentheses: 95% percentile intervals of a bootstrap over seeds, the same ones "
            "for every point and both rows; of few seeds they are too narrow. Verdicts on ratios "
            "use a t test of the ratios of single seeds instead."
        )
    return notes

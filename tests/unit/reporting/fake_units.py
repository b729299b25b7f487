"""Values by seed, and results, with scores per item."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from difftransformer.provenance.result import PerItemScores, RatioTerm, Result
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import SeedValue

ITEMS = 6


def with_units(
    values: NDArray[np.float64], weights: NDArray[np.float64] | None = None
) -> list[SeedValue]:
    """A seed a line of [S, D]."""
    seeds = []
    for seed, line in enumerate(values):
        weight_values = None if weights is None else weights.tolist()
        mean = line.sum() / (len(line) if weights is None else weights.sum())
        units = PerItemScores(
            item_type="items", terms=[RatioTerm(values=line.tolist(), weights=weight_values)]
        )
        seeds.append(
            SeedValue(seed=seed, value=mean, text="", job_ids=[f"j{seed}"], per_item=units)
        )
    return seeds


def units_everywhere(results: Results) -> Results:
    """Give every number of an evaluation items, which differ by row, and whose mean it is."""

    def units(run: str, name: str, value: float) -> PerItemScores:
        random = np.random.default_rng(list(f"{run} {name}".encode()))
        items = random.normal(0, 0.2, ITEMS)
        values = value + items - items.mean()
        return PerItemScores(item_type="items", terms=[RatioTerm(values=values.tolist())])

    def with_per_item(result: Result) -> Result:
        per_item = {
            name: units(result.run, name, value)
            for name, value in result.metrics.items()
            if value is not None
        }
        return result.model_copy(update={"per_item": per_item})

    evaluations = {key: with_per_item(result) for key, result in results.evaluations.items()}
    return replace(results, evaluations=evaluations)

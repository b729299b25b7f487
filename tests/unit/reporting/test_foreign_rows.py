"""Every report that allows pretrained models, with one that has a single result."""

from dataclasses import replace

import pytest
from fake_configs import RESOLVER, SCALE, resolved_artifact
from fake_rest import made_up
from fake_results import FakeResults
from pictures import picture_of

from difftransformer.config.artifacts import Kind
from difftransformer.config.evaluation import AnyModel, Suite
from difftransformer.config.evaluations import evaluation
from difftransformer.config.resolved_artifacts import ResolvedArtifact
from difftransformer.config.run import PRETRAINED_SEED
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import DIFFERENCE_SUFFIX
from difftransformer.reporting.collect import Results, load_results
from difftransformer.reporting.evidence import contrast_evidence
from difftransformer.reporting.section_context import SectionContext, get_prompt_maps
from difftransformer.reporting.table_job import make_table


def foreign(name: str, kind: Kind) -> tuple[ResolvedArtifact, str]:
    """An artifact whose first row is a pretrained model, with seeds that it does not have."""
    artifact = resolved_artifact(name, kind, seeds=(1, 2))
    run = artifact.sections[0].rows[0].run
    changes = {"pretrained": True, "facts": {}, "baseline": None, "paired_run": None}
    sections = [
        part.model_copy(
            update={
                "rows": [
                    row.model_copy(update=changes) if row.run == run else row for row in part.rows
                ]
            }
        )
        for part in artifact.sections
    ]
    return artifact.model_copy(update={"sections": sections}), run


def with_single_seed(results: Results, run: str) -> Results:
    """Results with those alone of a run that a pretrained model has."""

    def is_measured(result: tuple[str, str, int]) -> bool:
        return result[1] != run or result[2] == PRETRAINED_SEED

    def marked_pretrained(result: Result) -> Result:
        more = {"pretrained": {"name": "somewhere/model"}} if result.run == run else {}
        return result.model_copy(update={"settings": result.settings | more})

    return replace(
        results,
        evaluations={
            key: marked_pretrained(result)
            for key, result in results.evaluations.items()
            if is_measured(key)
        },
    )


def pretrained_artifacts(kind: Kind) -> list[str]:
    return [
        name
        for name in made_up(kind)
        if all(
            issubclass(evaluation(part.evaluation).suite or Suite, AnyModel)
            for part in RESOLVER.artifacts[name].sections
        )
    ]


@pytest.mark.parametrize("name", pretrained_artifacts("table"))
def test_tables(name: str, fake: FakeResults) -> None:
    artifact, run = foreign(name, "table")
    table = make_table(artifact, with_single_seed(load_results(fake.results, SCALE), run))
    assert all(part.cells for part in table.sections)
    assert {cell.n for part in table.sections for cell in part.cells if cell.row == run} <= {0, 1}


@pytest.mark.parametrize("name", pretrained_artifacts("table"))
def test_every_seed_is_compared_with_it(name: str, fake: FakeResults) -> None:
    artifact, run = foreign(name, "table")
    # The seed number of pretrained models is exploratory, which excludes only trained models.
    artifact = artifact.model_copy(update={"exploratory_seeds": [PRETRAINED_SEED]})
    results = with_single_seed(load_results(fake.results, SCALE), run)
    table = make_table(artifact, results)
    baseline = {row.run for part in artifact.sections for row in part.rows if row.baseline == run}
    differences = [
        cell
        for part in table.sections
        for cell in part.cells
        if cell.row in baseline and cell.column.endswith(DIFFERENCE_SUFFIX)
    ]
    seeds = [tuple(seed.seed for seed in cell.seeds) for cell in differences]
    assert set(seeds) <= {(1, 2), ()}  # a row may have no value in a column
    assert not seeds or any(seeds)
    for claim_id, claim in RESOLVER.registry.claims.items():
        if claim.artifact == name and claim.over == "seeds":
            for result in claim.contrasts:
                evidence = contrast_evidence(result, claim, claim_id, artifact, table, results)
                assert result.baseline != run or evidence.seeds == [1, 2]


@pytest.mark.parametrize("name", pretrained_artifacts("table"))
def test_maps_of_the_report(name: str, fake: FakeResults) -> None:
    artifact, run = foreign(name, "table")
    results = with_single_seed(load_results(fake.results, SCALE), run)
    for part in artifact.sections:
        evidence = get_prompt_maps(SectionContext(artifact, part, results))
        assert not evidence or any(result.run == run for result in evidence)


@pytest.mark.parametrize("name", pretrained_artifacts("figure"))
def test_figures(name: str, fake: FakeResults) -> None:
    artifact, run = foreign(name, "figure")
    assert picture_of(artifact, with_single_seed(load_results(fake.results, SCALE), run), fake).axes

"""Every column that a claim may name is in a table."""

import pytest
from fake_configs import RESOLVER, SCALE, resolved_artifact
from fake_rest import made_up
from fake_results import FakeResults

from difftransformer.config.scales import claims_on_proxies
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.table_job import make_table

CLAIMS = claims_on_proxies(RESOLVER.scale.proxies, RESOLVER.registry.claims)
TABLES = [
    name
    for name in made_up("table")
    if any(part.typed_options.claim_columns for part in RESOLVER.artifacts[name].sections)
]


@pytest.fixture(scope="module")
def tables(fake: FakeResults) -> dict[str, TableDocument]:
    """Tables that claims may be about, of made-up results."""
    results = load_results(fake.results, SCALE)
    return {name: make_table(resolved_artifact(name), results) for name in TABLES}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_table_has_the_column_of_a_claim_for_both_models(
    name: str, tables: dict[str, TableDocument]
) -> None:
    for contrast in CLAIMS[name].contrasts:
        for run in contrast.sides.values():
            cell = tables[CLAIMS[name].artifact].find(run, contrast.metric)
            assert cell is not None and cell.seeds, (run, contrast.metric)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_every_column_that_a_claim_may_be_about(
    name: str, tables: dict[str, TableDocument]
) -> None:
    columns = {cell.column for cell in tables[name].cells()}
    for part in RESOLVER.artifacts[name].sections:
        assert columns.issuperset(part.typed_options.claim_columns), part.evaluation

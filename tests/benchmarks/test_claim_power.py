"""Power of the registered claims, and false decisions of their families, by simulation."""

import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import claim_power as simulation


class Registered:
    """The claims at scale tiny, with what the simulation takes of them."""

    def __init__(self) -> None:
        self.tested, self.default = simulation.registered()
        self.claims = self.tested.claims
        self.families = self.tested.families
        self.testable = [name for names in self.families.values() for name in names]

    def alpha(self, name: str) -> float:
        """Alpha of Holm's first step in the family of a claim."""
        return self.tested.alpha / len(self.families[self.claims[name].family])


@pytest.fixture(scope="module")
def registered() -> Registered:
    return Registered()


def test_every_tested_claim_has_observed_deviations_from_a_record(
    registered: Registered, repository: Path
) -> None:
    assert set(simulation.OBSERVED) == set(registered.testable)
    for name, seen in simulation.OBSERVED.items():
        assert len(seen.deviations) == len(registered.claims[name].contrasts), name
        assert (repository / "benchmarks" / "records" / f"{seen.record}.md").is_file(), name


@pytest.mark.parametrize("name", ["V1.attention", "V2.transformer"])
def test_twelve_seeds_decide_a_claim_at_the_effect_it_names(
    registered: Registered, name: str
) -> None:
    claim, seen, repeats = registered.claims[name], simulation.OBSERVED[name], 300
    simulated_power = simulation.power(claim, seen, 12, registered.alpha(name), repeats)
    assert simulated_power >= 0.8 - 3 * math.sqrt(0.8 * 0.2 / repeats)
    # A tenth of the effect is seldom found: the effect is what decides.
    weak = claim.model_copy(update={"powered_for": claim.powered_for / 10})
    assert simulation.power(weak, seen, 12, registered.alpha(name), repeats) < 0.2


@pytest.mark.parametrize(
    "family",
    ["primary endpoints of dex", "secondary endpoints of dex", "primary endpoints of diff_v2"],
)
def test_a_family_has_at_most_its_nominal_error_rate(registered: Registered, family: str) -> None:
    """Differences of 0, and true equivalences and noninferiorities on their margins."""
    repeats, names = 400, registered.families[family]
    p_values = [
        simulation.null_p_values(
            registered.claims[name],
            simulation.OBSERVED[name],
            12,
            registered.alpha(name),
            repeats,
            seed,
        )
        for seed, name in enumerate(names)
    ]
    alpha = registered.tested.alpha
    error = simulation.family_error(p_values, alpha)
    assert error <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / repeats)


def test_the_null_of_two_contrasts_is_the_least_favorable(registered: Registered) -> None:
    claim, seen = registered.claims["V1.attention"], simulation.OBSERVED["V1.attention"]
    repeats = 300
    worst = simulation.null_p_values(claim, seen, 12, 0.05, repeats, 0)
    both = [
        simulation.simulate(claim, seen, (0.0, 0.0), 12, np.random.default_rng(seed)).p
        for seed in range(repeats)
    ]
    assert np.mean(worst < 0.05) >= np.mean(np.array(both) < 0.05)
    assert np.mean(worst < 0.05) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / repeats)


def test_six_seeds_can_decide_what_the_default_targets_answer(registered: Registered) -> None:
    assert len(registered.default) > 5
    for name in registered.default:
        least = simulation.least_p(registered.claims[name], simulation.OBSERVED[name], 6)
        assert least < registered.alpha(name), name


def test_the_page_has_the_claims_as_they_are_registered(
    registered: Registered, repository: Path
) -> None:
    page = (repository / "docs" / "verdicts.md").read_text(encoding="utf-8")
    section = page.partition("\n## Power\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| ((?:V1|V2|Dex)\.\w+) \| (.+) \|$", section, re.MULTILINE)
    rows = {name: [cell.strip() for cell in cells.split("|")] for name, cells in lines}
    assert list(rows) == registered.testable
    for name, (test, named, deviations, power, *_) in rows.items():
        claim, seen = registered.claims[name], simulation.OBSERVED[name]
        assert (test, float(named)) == (claim.test, claim.powered_for), name
        expected = ", ".join(f"{deviation:g}" for deviation in seen.deviations)
        assert deviations == f"{expected} ({seen.seeds})", name
        assert float(power) >= 0.8, name

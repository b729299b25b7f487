"""The registered claims at a scale: which tables answer them, and what the job gets that tests."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from difftransformer.config.artifact_slices import TestedClaims
from difftransformer.config.measurements import module_of
from difftransformer.config.scales import not_testable, stand_in_claims
from difftransformer.planning.artifacts import Artifacts
from difftransformer.planning.jobs import ENTRIES
from difftransformer.provenance.fingerprint import code_fingerprint


@dataclass(frozen=True, eq=False)
class Claims:
    """The claims of the registry, over the tables of a scale."""

    artifacts: Artifacts

    def answering(self, artifacts: Collection[str]) -> list[str]:
        """Return those of some artifacts whose tables have numbers of claims."""
        claims = self.artifacts.jobs.catalogue.registry.claims.values()
        return [name for name in dict.fromkeys(c.artifact for c in claims) if name in artifacts]

    def tested(self, asked: Collection[str], kept: Mapping[str, Sequence[int]]) -> TestedClaims:
        """Return all claims, with the tables that answer them.

        Args:
            asked: Artifacts that this call builds.
            kept: Seeds of the tables that an earlier call built, of other artifacts.
        """
        catalogue = self.artifacts.jobs.catalogue
        registry, scale = catalogue.registry, catalogue.scale
        claims = stand_in_claims(scale.stand_ins, registry.claims)
        tables = [self.artifacts.slice(name, "table") for name in self.answering({*asked, *kept})]
        untestable = {
            name: why
            for name, claim in claims.items()
            if (why := not_testable(scale.not_testable, name, claim.artifact)) is not None
        }
        return TestedClaims(
            scale=self.artifacts.jobs.scale,
            alpha=registry.alpha,
            note=registry.note,
            claims=claims,
            digests={name: claim.digest for name, claim in registry.claims.items()},
            not_testable=untestable,
            tables=[
                table.model_copy(update={"seeds": list(kept.get(table.artifact, table.seeds))})
                for table in tables
            ],
            kept={name: self.artifacts.results(name, seeds) for name, seeds in kept.items()},
        )

    def code(self) -> str:
        """Return the fingerprint of what tests claims, with the tables of their numbers."""
        known = self.artifacts.known
        parts = (part for name in self.answering(known) for part in known[name].sections)
        reports = {module_of(part.measurement, "report") for part in parts}
        return code_fingerprint(ENTRIES["build_verdicts"], tuple(sorted(reports)))

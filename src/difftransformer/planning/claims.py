"""The registered claims at a scale, and the config of the job that tests them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from difftransformer.config.evaluations import module_of
from difftransformer.config.resolved_artifacts import TestedClaims
from difftransformer.config.scales import claims_on_proxies, not_testable
from difftransformer.planning.artifacts import Artifacts
from difftransformer.planning.rules import ENTRIES
from difftransformer.provenance.fingerprint import code_fingerprint


@dataclass(frozen=True, eq=False)
class Claims:
    """The registered claims on the papers' results, and the tables that test them at one scale."""

    artifacts: Artifacts

    def answering(self, artifacts: Collection[str]) -> list[str]:
        """Return the artifacts among ``artifacts`` whose tables test registered claims."""
        claims = self.artifacts.jobs.resolver.registry.claims.values()
        return [name for name in dict.fromkeys(c.artifact for c in claims) if name in artifacts]

    def tested(
        self, requested: Collection[str], earlier: Mapping[str, Sequence[int]]
    ) -> TestedClaims:
        """Return the config of the job that tests claims: all claims, and tables that test them.

        Args:
            requested: Artifacts that this call builds.
            earlier: Artifacts that an earlier call built, with the seeds of their tables.
        """
        resolver = self.artifacts.jobs.resolver
        registry, scale = resolver.registry, resolver.scale
        claims = claims_on_proxies(scale.proxies, registry.claims)
        tables = [
            self.artifacts.resolve(name, "table") for name in self.answering({*requested, *earlier})
        ]
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
                table.model_copy(update={"seeds": list(earlier.get(table.artifact, table.seeds))})
                for table in tables
            ],
            earlier_results={
                name: self.artifacts.results(name, seeds) for name, seeds in earlier.items()
            },
        )

    def code(self) -> str:
        """Return the fingerprint of the code that tests claims, with the code of their tables."""
        artifacts = self.artifacts.available
        answering = (artifacts[name] for name in self.answering(artifacts))
        kinds = {section.evaluation for artifact in answering for section in artifact.sections}
        reports = {module_of(kind, "report") for kind in kinds}
        return code_fingerprint(ENTRIES["verdicts"], tuple(sorted(reports)))

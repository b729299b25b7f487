"""Resolved parts of the shipped configuration, for synthetic results."""

import re
from pathlib import Path

from fake_adaptation import METHODS
from fake_v2 import SWEPT_HOT, VARIANT_FACTS, mechanism

from difftransformer.config.artifacts import Kind
from difftransformer.config.resolve import ConfigResolver
from difftransformer.config.resolved_artifacts import ResolvedArtifact, SweepRow
from difftransformer.planning.artifact_resolver import ArtifactResolver

SCALE = "tiny"
RESOLVER = ConfigResolver.load(Path(__file__).parents[3] / "config", {"scale": SCALE})
SWEPT = (
    "transformer",
    "diff",
    "diff_v2",
    "recall_transformer",
    "recall_diff",
    "transformer_size_32",
)
RATES = (1e-3, 2e-3, 4e-3, 8e-3)


def artifact_resolver() -> ArtifactResolver:
    """What the repository's own config folder declares, at our scale."""
    return ArtifactResolver(
        artifacts=RESOLVER.artifacts,
        labels={run: entry.label for run, entry in RESOLVER.runs.items()},
        judges={"hallucination": ["lexical"]},
        members=RESOLVER.members,
        color=lambda run: RESOLVER.entry(run).color,
        replications=RESOLVER.papers.replications,
    )


def resolved_artifact(
    name: str, kind: Kind = "table", seeds: tuple[int, ...] = (0, 1, 2)
) -> ResolvedArtifact:
    """The slice a job of this artifact gets."""
    declared = artifact_resolver()
    return declared.resolve(
        name,
        kind,
        scale=SCALE,
        seeds=seeds,
        facts={run: facts(run) for run in declared.labels},
        sweeps={run: sweep(run) for run in swept_runs()},
    )


def swept_runs() -> tuple[str, ...]:
    """Runs whose learning rates are swept."""
    return (*SWEPT, *SWEPT_HOT, *METHODS)


def timed_rows(name: str, *, trained_sizes: bool) -> list[str]:
    """Rows of all sections that show timings, at the sizes of their own runs or of the scale."""
    parts = [part for artifact in RESOLVER.artifacts.values() for part in artifact.sections]
    parts_with_timing = [part for part in parts if part.typed_options.timing == name]
    matching = [part for part in parts_with_timing if (part.evaluation != name) == trained_sizes]
    return list(dict.fromkeys(row.run for part in matching for row in part.rows))


def facts(run: str) -> dict[str, int | float | bool | str | None]:
    row = base(run).removeprefix("long_").removeprefix("icl_")
    return {
        "layers": 2,
        "heads": 2 if row != "transformer" else 4,
        "head_dim": 64 if row.startswith("transformer_") else 32,
        "norm": row not in ("transformer", "transformer_halved_heads", "diff_no_groupnorm"),
        **VARIANT_FACTS,
        **mechanism(row),
        "deviation_from_paper": "causal form" if "dint" in run else None,
    }


def sweep(run: str) -> list[SweepRow]:
    chosen = 4e-3 if "diff" not in run else 2e-3
    return [
        SweepRow(run=run, run_id=f"sweep_{run}_{i}", learning_rate=lr, chosen=lr == chosen)
        for i, lr in enumerate(RATES)
    ]


def base(run: str) -> str:
    before, after = (
        r"^(equal_|budget_)?(recall|math|reasoning|curvature)_",
        r"_size_\d+$|_more_tokens$|_equal_flops$",
    )
    return re.sub(f"{before}|{after}", "", run)


def width(run: str) -> int:
    """Width of a run: that of its size, else that of all others."""
    match = re.search(r"_size_(\d+)$", run)
    return int(match.group(1)) if match else 128

"""Jobs of a workflow are forked from one process that has imported torch."""

import csv

from small_workflow import Checkout

_TORCH = 100.0
"""MiB that a process has at least once torch is imported."""


def test_what_snakemake_starts_for_a_training_imports_nothing(finished: Checkout) -> None:
    # Had Snakemake's variables become others, each job would be refused and start by itself.
    files = list(finished.folder.glob("results/smoke/benchmarks/pretrain/*/*.tsv"))
    assert files
    for file in files:
        with file.open() as table:
            (row,) = csv.DictReader(table, delimiter="\t")
        assert row["max_rss"] == "NA" or float(row["max_rss"]) < _TORCH, row

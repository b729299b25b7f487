"""The steps of docs/adding_a_variant.md work."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_workflow import Checkout

REGISTRY = "src/difftransformer/models/attention/registry.py"


@pytest.mark.slow
def test_the_page_adds_a_variant_and_its_table(
    finished: Checkout, repository: Path, tmp_path: Path
) -> None:
    page = (repository / "docs" / "adding_a_variant.md").read_text()
    assert len(page.splitlines()) < 132
    blocks = re.findall(r"^```\w+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    code, line, run, table, oracle, differential, second_oracle = blocks
    commands = re.findall(r"^    \.venv/bin/(.*)$", page, re.MULTILINE)
    checkout = Checkout(tmp_path / "copy")
    shutil.copytree(finished.folder, checkout.folder)

    (file,) = re.findall(r"`(src/\S+\.py)`", page)
    (checkout.folder / file).write_text(code)
    (second,) = re.findall(r"another lambda, `(\S+\.py)`", page)
    (checkout.folder / file).with_name(second).write_text(differential)
    (entry,) = re.findall(r'the line is `("\w+": Variant\(.*\),)`', page, re.MULTILINE)
    (checkout.folder / "config/artifacts/my_table.yaml").write_text(table)
    checkout.edit(REGISTRY, "_VARIANTS = {\n", f"_VARIANTS = {{\n{line}    {entry}\n")
    checkout.edit("config/runs.yaml", "runs:\n", f"runs:\n{run}")

    for part in ("tests", "pyproject.toml"):
        copy = shutil.copytree if (repository / part).is_dir() else shutil.copy
        copy(repository / part, checkout.folder / part)
    with (checkout.folder / "tests/attention/oracles.py").open("a") as oracles:
        oracles.write(f"\n\n{oracle}\n\n{second_oracle}")

    contract, build = (command.split() for command in commands)
    contract[-1] += " or " + second.removesuffix(".py")
    build = build[: build.index("--cores")]
    ended = subprocess.run(
        [sys.executable, "-m", *contract, "-q", "-p", "no:cacheprovider"],
        cwd=checkout.folder,
        env={**os.environ, "PYTHONPATH": str(checkout.folder / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    planned = checkout.planned(*build[1:])
    assert planned == {
        "Train head_gain, seed 0",
        "Evaluate validation_slices on head_gain, seed 0",
        "Build the table my_table",
        "Test the claims",
        "Write the report",
    }
    checkout.snakemake(*build[1:], "--cores", "1")
    rows = (checkout.folder / "results/smoke/tables/my_table.csv").read_text()
    assert "\nmy_table,head_gain," in rows

    # All others are as they were; the report depends on what is asked for.
    assert checkout.planned("default_targets") == {"Test the claims", "Write the report"}
    checkout.edit(file, "fill_(1.0)", "fill_(0.5)")
    assert checkout.planned("default_targets", *build[1:]) == planned

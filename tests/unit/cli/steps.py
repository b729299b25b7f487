"""Calls of `difftransformer step`, as the rules make them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Paths = Mapping[str, str | Path | list[str]]


def step_words(
    rule: str, config: str | Path, inputs: Paths, outputs: Paths, *more: str, **files: Any
) -> list[str]:
    """Return the words of a call.

    Args:
        rule: Name of the rule.
        config: File of the settings.
        inputs: Input files by name.
        outputs: Output files by name.
        *more: Options.
        **files: What else `--files` has: `seed`, `results`.
    """
    all_files = {"inputs": _listed(inputs), "outputs": _listed(outputs)} | files
    return ["step", rule, "--job-config", str(config), "--files", json.dumps(all_files), *more]


def _listed(paths: Paths) -> dict[str, list[str]]:
    return {
        name: value if isinstance(value, list) else [str(value)] for name, value in paths.items()
    }

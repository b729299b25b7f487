"""Checks of the environment that a process runs in."""

from pathlib import Path

import pytest

from difftransformer.errors import ConfigError
from difftransformer.provenance.environment import require_own_package


def checkout(folder: Path) -> Path:
    """Make what a checkout is recognized by; return the folder of its package."""
    package = folder / "src" / "difftransformer"
    package.mkdir(parents=True)
    (folder / "Snakefile").touch()
    return package


def test_the_package_of_another_checkout_is_refused(tmp_path: Path) -> None:
    first = checkout(tmp_path / "first")
    checkout(tmp_path / "second")
    require_own_package(tmp_path / "first", first)
    with pytest.raises(ConfigError, match=r"second: its environment imports .*first.*make install"):
        require_own_package(tmp_path / "second", first)


def test_an_installed_package_serves_every_checkout(tmp_path: Path) -> None:
    installed = tmp_path / "site-packages" / "difftransformer"
    installed.mkdir(parents=True)
    checkout(tmp_path / "project")
    require_own_package(tmp_path / "project", installed)


def test_a_folder_without_sources_takes_any_package(tmp_path: Path) -> None:
    package = checkout(tmp_path / "first")
    (tmp_path / "workflow").mkdir()
    require_own_package(tmp_path / "workflow", package)


def test_a_checkout_may_be_reached_through_a_link(tmp_path: Path) -> None:
    package = checkout(tmp_path / "first")
    (tmp_path / "link").symlink_to(tmp_path / "first")
    require_own_package(tmp_path / "link", package)

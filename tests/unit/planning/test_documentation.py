"""What is generated from the settings is what is committed."""

from pathlib import Path

from difftransformer.planning.documentation import documentation


def test_generated_documentation_is_current(repository: Path) -> None:
    for path, text in documentation(repository / "config").items():
        assert path.is_file() and path.read_text() == text, (
            f"{path.relative_to(repository)} is stale: run `make schema`"
        )

"""The package with what its core, or its trainer, depends on and nothing else."""

import json
import os
import re
import subprocess
import sys
import time
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from transformers import AutoModelForCausalLM

TRAIN = """
from pathlib import Path
import numpy as np
from tiny_training import VOCAB, make_run_config, write_dataset
from difftransformer.convert.checkpoint import load_model
from difftransformer.tracking.tracker import NullTracker
from difftransformer.training.pretrain import pretrain

tokens = np.arange(6000) % VOCAB
dataset = write_dataset(
    Path("text"), {"train": tokens[:5000], "validation": tokens[5000:]}, vocab_size=VOCAB
)
pretrain(
    make_run_config("VARIANT"), model=None, dataset=dataset, output=Path("out"),
    state=Path("state"), seed=0, threads=1, tracker=NullTracker(), code="",
)
print(load_model(Path("out")).config.d_model)
"""
EXPORT = """
import json
from pathlib import Path
from difftransformer.convert.export import export_model

added = [{"id": 7, "content": "<|endoftext|>", "special": True}]
vocabulary = {"model": {"vocab": {"a": 0}}}
Path("out/tokenizer.json").write_text(json.dumps({"added_tokens": added} | vocabulary))
Path("out/tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
Path("out/training.json").unlink()  # which says that its tokenizer was another
export_model(Path("out"), Path("exported"), "FORMAT")
"""
CORE = ("torch", "numpy", "safetensors")
NOT_OF_THE_CORE = ("pydantic", "yaml", "psutil", "fsspec", "filelock", "triton")
HEAVY = ("snakemake", "mlflow", "transformers", "pandas", "lm_eval", "typer", "scipy", "tokenizers")


def closure(*names: str) -> dict[str, metadata.Distribution]:
    """Return distributions, and all that they require on this system, by name."""
    actual: dict[str, metadata.Distribution] = {}
    waiting, seen = [*map(Requirement, names)], set()
    while waiting:
        expected = waiting.pop()
        for extra in {"", *expected.extras} - {e for n, e in seen if n == expected.name}:
            seen.add((expected.name, extra))
            actual[expected.name] = distribution = metadata.distribution(expected.name)
            for requirement in map(Requirement, distribution.requires or []):
                marker = requirement.marker
                if marker is None or marker.evaluate({"extra": extra}):
                    waiting.append(requirement)
    return actual


def link(folder: Path, *names: str) -> Path:
    """Make an environment of these distributions and what they require, and nothing else."""
    venv.create(folder, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    for name, distribution in closure(*names).items():
        tops = {Path(file).parts[0] for file in distribution.files or []} - {"..", "__pycache__"}
        for top in tops:
            if name == "difftransformer":
                continue
            source = Path(str(distribution.locate_file(top)))
            if not (packages / top).exists():
                (packages / top).symlink_to(source)
    return packages


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """The interpreter of an environment for training with the sources beside it."""
    folder = tmp_path_factory.mktemp("train") / "environment"
    packages = link(folder, "difftransformer[train]")
    (packages / "core.pth").write_text(f"{repository / 'src'}\n")
    installed = metadata.distribution("difftransformer").locate_file("")
    for actual in Path(str(installed)).glob("difftransformer-*.dist-info"):
        (packages / actual.name).symlink_to(actual)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """The interpreter of an environment of torch and numpy with the sources beside it."""
    folder = tmp_path_factory.mktemp("core") / "environment"
    (link(folder, *CORE) / "core.pth").write_text(f"{repository / 'src'}\n")
    return folder / "bin" / "python"


def run(python: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [python, *words],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(Path(__file__).parent / "training")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("variant", "format"), [("diff_v1", "diffllama"), ("diff_v2", "huggingface")]
)
def test_a_model_trains_is_saved_loaded_and_exported(
    python: Path, tmp_path: Path, variant: str, format: str
) -> None:
    ended = run(python, tmp_path, "-c", TRAIN.replace("VARIANT", variant))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == "32"
    assert {"model.safetensors", "config.json", "training.json"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }
    ended = run(python, tmp_path, "-c", EXPORT.replace("FORMAT", format))
    assert ended.returncode == 0, ended.stderr
    generation_config = json.loads((tmp_path / "exported" / "generation_config.json").read_text())
    assert generation_config == {"eos_token_id": 7}
    opened = AutoModelForCausalLM.from_pretrained(tmp_path / "exported", trust_remote_code=True)
    assert opened.config.model_type == format.replace("huggingface", "difftransformer")


def test_the_environment_has_none_of_the_extras(python: Path, tmp_path: Path) -> None:
    code = f"import importlib.util as u; print([n for n in {HEAVY} if u.find_spec(n)])"
    assert run(python, tmp_path, "-c", code).stdout.strip() == "[]"


@pytest.fixture(scope="module")
def readme_example(repository: Path) -> str:
    """The README's lines of Python."""
    actual = re.search(r"```python\n(.*?)```", (repository / "README.md").read_text(), re.S)
    assert actual is not None
    return actual[1]


def test_a_layer_is_used_in_three_lines(core: Path, tmp_path: Path, readme_example: str) -> None:
    ended = run(core, tmp_path, "-c", readme_example)
    assert ended.returncode == 0, ended.stderr


LEARN = """
import sys, torch
from difftransformer import DifferentialAttention, KeyValueCache
from difftransformer.models.config import ModelConfig
from difftransformer.models.transformer import Transformer

layer = DifferentialAttention(32, num_heads=2, layer_index=0)
layer(torch.randn(1, 300, 32)).sum().backward()
layer(torch.randn(1, 3, 32), cache=KeyValueCache(3))
sizes = dict(vocab_size=8, d_model=16, num_layers=2, ffn_dim=24, max_positions=9)
for variant in ("softmax", "diff_v1", "diff_v2"):
    config = ModelConfig(**sizes, attention={"variant": variant, "head_dim": 4})
    model = Transformer.build(config, "cpu_dispatch", 0)
    model(torch.arange(8)[None]).logsumexp(-1).sum().backward()
    assert all(one.grad is not None for one in model.parameters())
print([name for name in UNWANTED if name in sys.modules])
"""


def test_layers_and_models_learn_with_torch_alone(core: Path, tmp_path: Path) -> None:
    unwanted = (*NOT_OF_THE_CORE, *HEAVY, "difftransformer.config", "difftransformer.machine")
    ended = run(core, tmp_path, "-c", LEARN.replace("UNWANTED", str(unwanted)))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == "[]"


def build(kind: str, sources: Path, folder: Path) -> Path:
    words = [sys.executable, "-m", "hatchling", "build", "--target", kind, "-d", str(folder)]
    subprocess.run(words, cwd=sources, check=True, capture_output=True)
    (made,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


def test_a_wheel_of_the_sdist_computes_within_a_minute_in_an_empty_environment(
    tmp_path: Path, repository: Path, readme_example: str
) -> None:
    packed = build("sdist", repository, tmp_path)
    subprocess.run(["tar", "-xf", packed, "-C", tmp_path], check=True)
    wheel = build("wheel", packed.with_name(packed.name.removesuffix(".tar.gz")), tmp_path)
    packages = link(tmp_path / "environment", *CORE)
    python = tmp_path / "environment" / "bin" / "python"
    started = time.monotonic()
    install = ("-m", "pip", "--python", str(python), "install", "--no-index", "--quiet")
    subprocess.run([sys.executable, *install, str(wheel)], check=True)  # finds all it wants there
    ended = run(python, tmp_path, "-c", readme_example)
    assert ended.returncode == 0, ended.stderr
    assert time.monotonic() - started < 60
    assert (packages / "difftransformer" / "py.typed").is_file()
    (about,) = metadata.distributions(name="difftransformer", path=[str(packages)])
    assert about.version == metadata.version("difftransformer")
    assert about.metadata["Description-Content-Type"] == "text/markdown"
    assert {"pipeline", "eval", "postgres"} <= set(about.metadata.get_all("Provides-Extra") or [])


def test_citation_files_have_the_packaged_version(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    cited = yaml.safe_load((repository / "CITATION.cff").read_text())
    archived = json.loads((repository / ".zenodo.json").read_text())
    assert cited["version"] == archived["version"] == project["version"]
    assert cited["license"] == archived["license"] == project["license"]


def test_a_missing_extra_is_one_line(python: Path, tmp_path: Path) -> None:
    ended = run(python, tmp_path, "-m", "difftransformer", "--help")
    assert ended.returncode == 1
    stderr = ended.stderr.strip()
    assert stderr == "error: typer is not installed: pip install '.[pipeline]' in a checkout"

"""Folders of this machine reach nothing that others read: reports, published models."""

import json
from pathlib import Path
from typing import Any

import pytest
from fake_results import FakeResults

from difftransformer.planning.plan import Plan
from difftransformer.provenance.masking import without_folders
from difftransformer.provenance.result import read_result
from difftransformer.reporting.provenance_summary import summarize_provenance
from difftransformer.reporting.site.data import settings


@pytest.mark.parametrize(
    ("value", "displayed"),
    [
        ("/data/user/acme/base", "base"),
        ("/data/user/acme/base/", "base"),
        ("/data/two words/my, base", "my, base"),
        ("~/acme/base", "base"),
        ("../../acme/base", "base"),
        ("./base", "base"),
        ("clients/acme/base", "base"),
        ("C:\\Users\\user\\base", "base"),
        ("file:///data/user/base", "base"),
        ("sqlite:////data/user/mlflow.db", "mlflow.db"),
        ("2 files of /data/a b/*.txt, ~/acme/c.txt", "2 files of *.txt, c.txt"),
        (
            "table6 --config pretrained=/data/user/base seeds=8",
            "table6 --config pretrained=base seeds=8",
        ),
        ("Qwen/Qwen2-0.5B", "Qwen/Qwen2-0.5B"),
        ("https://host/a/b.txt", "https://host/a/b.txt"),
        ("tokens/s, 1/2 of them", "tokens/s, 1/2 of them"),
        ({"a": ["/x/y", 1, None, {"b": "/x/z"}]}, {"a": ["y", 1, None, {"b": "z"}]}),
    ],
)
def test_only_the_last_part_of_a_path_is_shown(value: Any, displayed: Any) -> None:
    assert without_folders(value) == displayed


def test_a_report_names_no_folder_of_a_base_nor_of_the_results(tmp_path: Path) -> None:
    fake = FakeResults(tmp_path / "results" / "tiny")
    fake.language_model("diff", 0)
    paths = {}
    for path in fake.results[:]:
        content = json.loads(path.read_text())
        content["settings"]["pretrained"] = {"name": "/data/user/acme/base", "revision": None}
        fake.write(path, content["kind"], content["run"], content["seed"], content["suite"],
                   content["metrics"], content["settings"])  # fmt: skip
        paths[read_result(path).job_id] = path
    results = [read_result(path) for path in paths.values()]
    report_data = json.dumps([settings(results), summarize_provenance(results, paths)])
    assert '"pretrained.name": "base"' in report_data
    assert "tiny/runs/diff/0/training.json" in report_data
    assert "/data/user" not in report_data and str(tmp_path) not in report_data


def test_commands_of_a_report_name_no_folder(repository: Path, tmp_path: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "smoke", "results": str(tmp_path / "found")})
    assert plan._config() == "--config scale=smoke results=found"

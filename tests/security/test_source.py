"""What the source never does: unpickle, build shell commands, open servers to the network."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from difftransformer.reporting.serving import HOST

FORBIDDEN_IMPORTS = {"pickle", "dill", "joblib", "shelve", "marshal", "cloudpickle"}
FORBIDDEN_CALLS = {
    "eval", "exec", "os.system", "os.popen", "yaml.unsafe_load", "yaml.full_load",
    "torch.hub.load", "pd.read_pickle", "pandas.read_pickle",
}  # fmt: skip
REQUIRED = {
    "torch.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "np.save": ("allow_pickle", False),
    "AutoModelForCausalLM.from_pretrained": ("use_safetensors", True),
    "Environment": ("autoescape", True),
}
"""Calls that are allowed with this keyword alone."""


def faults(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name in FORBIDDEN_IMPORTS)
            case ast.ImportFrom(module=str(module)) if module in FORBIDDEN_IMPORTS:
                yield module
            case ast.Constant(value="0.0.0.0" | "::"):
                yield "a server open to the network"
            case ast.Call():
                yield from _call_faults(node)


def _call_faults(call: ast.Call) -> Iterator[str]:
    name = ast.unparse(call.func)
    keywords = {keyword_node.arg: ast.unparse(keyword_node.value) for keyword_node in call.keywords}
    if name in FORBIDDEN_CALLS or name.endswith(".extractall"):
        yield name
    if name == "yaml.load" and keywords.get("Loader") not in {"_StrictLoader", "_FastLoader"}:
        yield name
    if keywords.get("shell") == "True" or keywords.get("trust_remote_code") == "True":
        yield f"{name} with shell or foreign code"
    if name in REQUIRED and (name != "Environment" or "loader" in keywords):  # jinja's, not ours
        keyword, value = REQUIRED[name]
        if keywords.get(keyword) != str(value) and "**" not in ast.unparse(call):
            yield f"{name} without {keyword}={value}"


def test_source_has_no_forbidden_calls(repository: Path) -> None:
    violations = [
        f"{path.relative_to(repository)}: {fault}"
        for path in sorted((repository / "src").rglob("*.py"))
        for fault in faults(path.read_text())
    ]
    assert violations == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from joblib import load", "torch.load(path)", "np.load(path)",
        "yaml.load(text, Loader=yaml.Loader)", "yaml.unsafe_load(text)", "os.system(text)",
        "subprocess.run(text, shell=True)", "eval(text)", "archive.extractall(folder)",
        "serve(host='0.0.0.0')", "load(name, trust_remote_code=True)", "Environment(loader=x)",
    ],
)  # fmt: skip
def test_forbidden_calls_are_detected(source: str) -> None:
    assert list(faults(source))


def test_servers_listen_on_loopback(repository: Path) -> None:
    files = [repository / "Makefile", repository / "Snakefile"]
    files += sorted((repository / "workflow").rglob("*.smk"))
    lines = [line for path in files for line in path.read_text().splitlines()]
    assert not [
        line for line in lines if re.search(r"mlflow (ui|server)|jupyter|http\.server", line)
    ]
    sources = [path.read_text() for path in sorted((repository / "src").rglob("*.py"))]
    starts = re.compile(r"_Server\(\(.+?\)|listening\.bind\(.+?\)|host=.+?\)", re.DOTALL)
    calls = [call for text in sources for call in starts.findall(text)]
    assert len(calls) == 2  # the reports' own, and MLflow's
    assert all("HOST" in call for call in calls), calls
    assert HOST == "127.0.0.1"


def test_shell_commands_hold_paths_and_ids_of_ours_alone(repository: Path) -> None:
    """Names are checked when they are read (`Name`), the results folder too; nothing else is.

    An input of a user's files is a listing of ours, named by its digest; the files are quoted.
    """
    ours = re.compile(r"threads|log:q|params\.(rule|code|config:q|files:q)|ROOT")
    files = sorted((repository / "workflow").rglob("*.smk"))
    text = "\n".join(path.read_text() for path in files)
    (step,) = re.findall(r"^STEP = \((.+?)^\)", text, re.MULTILINE | re.DOTALL)
    names = re.findall(r"\{([^{}]+)\}", " ".join([step, *re.findall(r"\bshell\((.+)\)", text)]))
    assert "ROOT" in names and all(ours.fullmatch(name) for name in names), names
    shells = re.findall(r"^    shell:\n        (.+)", text, re.MULTILINE)
    assert set(shells) == {"STEP", 'f"export DIFFTRANSFORMER_WARM=off; {STEP}"'}


def test_make_reads_no_yaml_and_quotes_what_it_is_given(repository: Path) -> None:
    lines = (repository / "Makefile").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    assert ".yaml" not in text
    declared = re.search(r"^KNOWN := (.+)", text, re.MULTILINE)
    assert declared is not None
    settings = "|".join(declared[1].split())
    references = list(re.finditer(rf"\$[({{]({settings})[)}}]", text))
    assert {reference[1] for reference in references} == {*declared[1].split()}
    for reference in references:  # in a condition, split into words, or quoted
        before = text[: reference.start()]
        assert re.search(
            rf"\$\((if (\$\(({settings})\))*|foreach one,|call quoted,(scale=|seeds=)?)$", before
        ), f"{before.splitlines()[-1]}{reference[0]}"


def test_an_image_has_all_that_git_knows_and_no_secret(repository: Path, tmp_path: Path) -> None:
    lines = (repository / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    assert {"secrets", "auth.ini", ".env", ".venv"} <= {*patterns}
    # Of git's form: a pattern begins at the top unless it says otherwise.
    anchored = (re.sub(r"^(!?)(?!\*\*/)", r"\1/", rule) for rule in patterns)
    (tmp_path / "patterns").write_text("\n".join(anchored))
    words = ["git", "ls-files", "--cached", "--ignored", f"--exclude-from={tmp_path}/patterns"]
    left_out = subprocess.run(words, cwd=repository, capture_output=True, text=True, check=True)
    assert left_out.stdout == ""

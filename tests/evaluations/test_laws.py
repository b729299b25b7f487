"""Design rules: an evaluation is one folder, and no module outside names it."""

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from difftransformer.config import evaluations as contract
from difftransformer.config.evaluations import evaluations
from difftransformer.errors import ConfigError
from difftransformer.planning import artifacts, jobs
from difftransformer.planning.plan import Plan
from difftransformer.provenance.fingerprint import import_closure

PACKAGE = Path(contract.__file__).resolve().parents[1]
ROOM = PACKAGE / "evaluations"
FILES = {
    ".".join(("difftransformer", *path.relative_to(PACKAGE).with_suffix("").parts)): name
    for name in evaluations()
    for path in (ROOM / name).rglob("*.py")
    if path.name != "__init__.py"
}


@pytest.fixture(scope="module")
def plan(repository: Path) -> Iterator[Plan]:
    """A plan in which every evaluation and every judge is asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", "http://localhost/v1")
        patch.setenv("OPENAI_API_KEY", "none")
        yield Plan.load(repository / "config", {"scale": "tiny", "judge": "both"})


@pytest.fixture(scope="module")
def closures(plan: Plan) -> Iterator[dict[tuple[str, ...], set[str]]]:
    """Modules behind every evaluation, judgment, job of timings, table and figure."""
    patch = pytest.MonkeyPatch()

    def closure(entry: str, more: tuple[str, ...] = (), *, on_gpu: bool = True) -> str:
        return " ".join(
            import_closure([entry, *(name.partition(":")[0] for name in more)], on_gpu=on_gpu)
        )

    patch.setattr(jobs, "code_fingerprint", closure)
    patch.setattr(artifacts, "code_fingerprint", closure)
    patch.setattr(artifacts, "config_fingerprint", lambda parts: parts[0])
    code: dict[tuple[str, ...], str] = {}
    for name in plan.artifacts.available:
        for suite, run in plan.artifacts.evaluations(name):
            code["evaluate", suite] = plan.jobs.code("evaluate", suite, run)
            for judge in plan.jobs.judges(suite):
                code["judge", suite, judge] = plan.jobs.code("judge_answers", judge, suite)
        if plan.artifacts.available[name].table:
            code["table", name] = plan.artifacts.code("table", name)
        if plan.artifacts.available[name].figure:
            code["figure", name] = plan.artifacts.code("figure", name)
        for run in plan.artifacts.runs(name):
            code["train", run] = plan.jobs.code("pretrain", run)
    for timing in plan.artifacts.timings():
        code["timing", timing] = plan.artifacts.timing_code(timing)
    code["report"] = plan.report_code() and plan.jobs.code("report")
    yield {job: set(text.split()) for job, text in code.items()}
    patch.undo()


@pytest.fixture(scope="module")
def owners(plan: Plan) -> dict[tuple[str, ...], set[str]]:
    """Evaluations that a job may depend on: its own, those it repeats, those a table shows."""
    owned: dict[tuple[str, ...], set[str]] = {}
    for name, artifact in plan.artifacts.available.items():
        evaluations_of_table = {part.evaluation for part in artifact.sections}
        forms = {"table": artifact.table, "figure": artifact.figure}
        owned |= {
            (form, name): evaluations_of_table for form, made in forms.items() if made is not None
        }
        for suite, _ in plan.artifacts.evaluations(name):
            suite_config = plan.resolver.suite(suite)
            owned["evaluate", suite] = {suite_config.kind, suite_config.base_suite.kind}
            for judge in plan.jobs.judges(suite):
                owned["judge", suite, judge] = {suite_config.kind}
    return owned | {("timing", name): {name} for name in plan.artifacts.timings()}


def test_an_edit_affects_only_its_evaluation_and_the_artifacts_that_show_it(
    closures: dict[tuple[str, ...], set[str]], owners: dict[tuple[str, ...], set[str]]
) -> None:
    for job, modules in closures.items():
        touched = {FILES[module] for module in modules & set(FILES)}
        assert touched <= owners.get(job, set()), job
    behind = set().union(*closures.values())
    assert set(FILES) <= behind, f"no job depends on {sorted(set(FILES) - behind)}"


def test_every_table_depends_on_the_reports_that_it_shows(
    closures: dict[tuple[str, ...], set[str]], owners: dict[tuple[str, ...], set[str]]
) -> None:
    for job, names in owners.items():
        role = "report" if job[0] in ("table", "figure") else "judge" if job[0] == "judge" else None
        for name in names:
            module = f"difftransformer.evaluations.{name}.{role or 'measure'}"
            assert module in closures[job], (job, module)


def test_reports_and_measurements_are_independent(
    closures: dict[tuple[str, ...], set[str]],
) -> None:
    """So that new words in a report measure nothing again, and a repaired loader says nothing."""
    for job, modules in closures.items():
        role = "measure" if job[0] in ("table", "figure") else "report"
        if job[0] in ("table", "figure", "evaluate", "timing"):
            assert not [module for module in modules & set(FILES) if module.endswith(f".{role}")]


def modules_outside() -> list[Path]:
    return [path for path in PACKAGE.rglob("*.py") if ROOM not in path.parents]


WORDS = {  # names of evaluations that are words of the configuration as well
    "recall",  # the corpus of generated rows
    "learning_rate",  # a setting
}


def test_no_module_outside_names_an_evaluation() -> None:
    names = set(evaluations()) - WORDS
    for path in modules_outside():
        tree = ast.parse(path.read_text())
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            location = f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Constant) and id(node) not in docs:
                assert node.value not in names, location
            if isinstance(node, ast.ImportFrom | ast.Import):
                imported = [alias.name for alias in node.names] + [
                    getattr(node, "module", "") or ""
                ]
                assert not any("evaluations." in module for module in imported), location
            if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute):
                about = node.left.attr in ("kind", "evaluation")
                literal = [
                    constant.value
                    for constant in node.comparators
                    if isinstance(constant, ast.Constant)
                ]
                assert not (about and set(literal) & set(evaluations())), location


def test_no_evaluation_imports_another() -> None:
    for path in ROOM.rglob("*.py"):
        own = path.relative_to(ROOM).parts[0]
        for other in re.findall(r"difftransformer\.evaluations\.(\w+)", path.read_text()):
            assert other == own, path


def test_no_module_outside_the_attention_package_names_a_variant() -> None:
    from difftransformer.models.attention.registry import variants

    room = PACKAGE / "models" / "attention"
    allowed = {"softmax"}  # an operation as well
    unilm = PACKAGE / "models" / "unilm.py"  # the published code of two variants
    for path in PACKAGE.rglob("*.py"):
        if room in path.parents or ROOM in path.parents or path == unilm:
            continue
        tree = ast.parse(path.read_text())
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and id(node) not in docs:
                assert node.value not in set(variants()) - allowed, f"{path}:{node.lineno}"


@pytest.mark.parametrize("name", evaluations())
def test_settings_are_light(name: str) -> None:
    heavy = {"torch", "pandas", "matplotlib", "seaborn", "lm_eval", "transformers", "datasets"}
    closure = import_closure([f"difftransformer.evaluations.{name}.settings"])
    own = [
        module_name
        for module_name in closure
        if module_name.startswith(f"difftransformer.evaluations.{name}.")
    ]
    for module in own:
        path = PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py")
        for node in ast.parse(path.read_text()).body:
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {module_name.partition(".")[0] for module_name in imported} & heavy, module


@pytest.mark.parametrize(
    ("spoil", "error_message"),
    [
        (lambda folder: (folder / "report.py").unlink(), "evaluations/sinks: lacks report.py"),
        (lambda folder: (folder / "report.py").write_text(""), "neither section"),
        (lambda folder: (folder / "measure.py").write_text(""), "has no function measure"),
        (lambda folder: (folder / "settings.py").write_text("def"), "not valid Python"),
    ],
)
def test_a_folder_that_breaks_the_contract_fails_with_a_one_line_error(
    spoil: Any, error_message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOM / "sinks", tmp_path / "sinks")
    spoil(tmp_path / "sinks")
    monkeypatch.setattr(contract, "_FOLDER", tmp_path)
    contract.evaluations.cache_clear()
    try:
        with pytest.raises(ConfigError, match=error_message) as error:
            evaluations()
    finally:
        contract.evaluations.cache_clear()
    assert "\n" not in str(error.value)

"""Runs that continue other runs, and datasets that have a base."""

from pathlib import Path

import pytest

from difftransformer.config.extension import OF_POSITIONS
from difftransformer.planning.plan import Plan

SCALES = ("smoke", "tiny", "gpu", "paper")


@pytest.fixture(scope="module", params=SCALES)
def plan(request: pytest.FixtureRequest, repository: Path) -> Plan:
    return Plan.load(repository / "config", {"scale": request.param})


def test_extended_runs_are_their_parents_with_a_longer_context(plan: Plan) -> None:
    extended = [name for name, entry in plan.catalogue.runs.items() if entry.init_from]
    assert {"long_transformer", "long_diff", "long_recall_diff"} <= set(extended)
    for name in extended:
        child, parent = plan.run(name), plan.run(str(plan.run(name).init_from))
        assert child.model.model_dump(exclude=set(OF_POSITIONS)) == parent.model.model_dump(
            exclude=set(OF_POSITIONS)
        )
        # theta grows by the 1.5th power of the length, as from 4K and 10000 to 64K and 640000
        longer = child.training.seq_len / parent.training.seq_len
        theta = child.model.rope_theta / parent.model.rope_theta
        assert longer > 1 and theta == pytest.approx(longer**1.5, rel=0.01)
        assert child.model.max_positions >= child.training.seq_len
        assert child.training.lr == pytest.approx(parent.training.lr / 4)


def test_paper_scale_extends_as_printed(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "paper"})
    long, parent = plan.run("long_diff"), plan.run("diff_3b")
    assert long.init_from == "diff_3b"
    assert (parent.model.d_model, parent.model.num_layers) == (3072, 28)
    assert (long.training.seq_len, long.model.rope_theta, long.training.lr) == (65536, 64e4, 8e-5)
    assert long.training.total_steps * long.training.tokens_per_step == pytest.approx(
        1.5e9, rel=0.01
    )


def test_every_run_is_trained_by_one_rule(plan: Plan) -> None:
    fresh, extended = (
        set(plan.trained_by(rule).split("|")) for rule in ("pretrain", "extend_context")
    )
    assert fresh | extended == set(plan.catalogue.runs)
    assert not fresh & extended


def test_a_derived_dataset_shares_the_tokenizer_of_its_base(plan: Plan) -> None:
    base = plan.catalogue.tokenizer_owner("long_text")
    assert plan.base_tokenizer("long_text") == [plan.layout.tokenizer(base)]
    assert plan.base_tokenizer(base) == []
    long, short = plan.catalogue.dataset("long_text"), plan.catalogue.dataset(base)
    assert long.upsampling is not None and short.upsampling is None
    assert (long.tokenizer, long.validation_share) == (short.tokenizer, short.validation_share)
    assert plan.run("diff").dataset == base or plan.scale == "paper"
    assert plan.base_tokenizer("recall_long") == plan.base_tokenizer("recall") == []


def test_a_corpus_takes_the_place_of_the_base(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for split in ("train", "validation"):
        (tmp_path / "data" / f"a.{split}.jsonl.zst").write_bytes(b"")
    plan = Plan.load(repository / "config", {"scale": "tiny", "corpus": "local_files"})
    assert plan.run("diff").dataset == "local_files"
    assert plan.run("long_diff").dataset == "long_text"
    assert plan.catalogue.tokenizer_owner("long_text") == "local_files"
    long, base = plan.catalogue.dataset("long_text"), plan.catalogue.dataset("local_files")
    assert long.sources == base.sources
    assert long.upsampling is not None


def test_what_a_derived_run_continues_comes_from_its_base(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "smoke"})
    entry = plan.catalogue.runs["long_diff"]
    plan.catalogue.runs["again"] = entry.model_copy(update={"base": "long_diff", "init_from": None})
    assert plan.run("again").init_from == "diff"
    twice = entry.model_copy(update={"init_from": "long_diff"})
    plan.catalogue.runs["twice"] = twice
    assert plan.run("twice").init_from == "long_diff"
    assert plan.parent_result("twice", 3).endswith("runs/long_diff/3/training.json")

"""Runs that continue other runs, and datasets that have a base."""

from dataclasses import replace
from pathlib import Path

import pytest

from difftransformer.config.project import RunEntry
from difftransformer.config.run import NOT_OF_WEIGHTS
from difftransformer.config.scales import inherited
from difftransformer.errors import ConfigError
from difftransformer.planning.plan import Plan


def test_extended_runs_are_their_parents_with_a_longer_context(plan: Plan) -> None:
    extended = [
        name
        for name in plan.resolver.runs
        if (parent := plan.resolver.entry(name).init_from) is not None
        and plan.jobs.run(name).model.max_positions > plan.jobs.run(parent).model.max_positions
    ]
    assert {"long_transformer", "long_diff", "long_recall_diff"} <= set(extended)
    for name in extended:
        child, parent = plan.jobs.run(name), plan.jobs.run(str(plan.jobs.run(name).init_from))
        own_fields = {name: getattr(child.model, name) for name in NOT_OF_WEIGHTS}
        assert child.model == replace(parent.model, **own_fields)
        # theta grows by the 1.5th power of the length, as from 4K and 10000 to 64K and 640000
        longer = child.training.seq_len / parent.training.seq_len
        theta = child.model.rope_theta / parent.model.rope_theta
        assert longer > 1 and theta == pytest.approx(longer**1.5, rel=0.01)
        assert child.model.max_positions >= child.training.seq_len
        assert child.training.lr == pytest.approx(parent.training.lr / 4)


def test_paper_scale_extends_as_printed(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "paper"})
    long, parent = plan.jobs.run("long_diff"), plan.jobs.run("diff_3b")
    assert long.init_from == "diff_3b"
    assert (parent.model.d_model, parent.model.num_layers) == (3072, 28)
    assert (long.training.seq_len, long.model.rope_theta, long.training.lr) == (65536, 64e4, 8e-5)
    assert long.training.total_steps * long.training.tokens_per_step == pytest.approx(
        1.5e9, rel=0.01
    )


def test_mathematics_is_trained_in_two_stages(plan: Plan) -> None:
    first, second = plan.jobs.run("math_diff"), plan.jobs.run("reasoning_diff")
    assert second.init_from == "math_diff"
    assert first.init_from == ("long_diff" if plan.jobs.scale in ("gpu", "paper") else "diff")
    assert first.model == second.model
    assert first.training.intermediate_steps and first.dataset != second.dataset
    owners = {plan.resolver.tokenizer_owner(run.dataset) for run in (first, second)}
    assert owners == {plan.resolver.tokenizer_owner(plan.jobs.run("diff").dataset)}
    sources = plan.resolver.dataset(first.dataset).sources
    assert len(sources) == 1 and not set(sources) & {"stdlib", "fineweb_edu"}


def test_paper_scale_has_the_printed_budgets_of_mathematics(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "paper"})
    first, second = plan.jobs.run("math_diff").training, plan.jobs.run("reasoning_diff").training
    assert (first.lr, second.lr) == (8e-5, 1e-5)
    for training, tokens, batch in ((first, 20e9, 4e6), (second, 2e9, 1e6)):
        assert training.total_steps * training.tokens_per_step == pytest.approx(tokens, rel=0.01)
        assert training.tokens_per_step == pytest.approx(batch, rel=0.05)
    checkpoint_tokens = [step * first.tokens_per_step for step in first.intermediate_steps]
    assert checkpoint_tokens == pytest.approx([6e9, 8e9, 10e9, 12e9, 14e9, 16e9, 18e9], rel=0.01)
    assert plan.resolver.suite("mathematics_by_tokens").max_new_tokens == 1024
    assert plan.resolver.suite("mathematics").max_new_tokens == 16384


def test_a_parent_with_another_vocabulary_is_refused_before_any_job(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "smoke"})
    entry = plan.resolver.runs["math_diff"]
    plan.resolver.runs["wrong"] = entry.model_copy(update={"init_from": "recall_diff"})
    with pytest.raises(ConfigError, match=r"runs.yaml: runs.wrong.init_from: model.vocab_size is"):
        plan.jobs.run("wrong")


def test_a_derived_dataset_shares_the_tokenizer_of_its_base(plan: Plan) -> None:
    base = plan.resolver.tokenizer_owner("long_text")
    assert plan.jobs.base_tokenizer("long_text") == [plan.jobs.layout.tokenizer(base)]
    assert plan.jobs.base_tokenizer(base) == []
    long, short = plan.resolver.dataset("long_text"), plan.resolver.dataset(base)
    assert long.upsampling is not None and short.upsampling is None
    assert (long.tokenizer, long.validation_share) == (short.tokenizer, short.validation_share)
    assert plan.jobs.run("diff").dataset == base or plan.jobs.scale == "paper"
    assert plan.jobs.base_tokenizer("recall_long") == plan.jobs.base_tokenizer("recall") == []


def test_a_corpus_replaces_the_base(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for split in ("train", "validation"):
        (tmp_path / "data" / f"a.{split}.jsonl.zst").write_bytes(b"")
    plan = Plan.load(repository / "config", {"scale": "tiny", "corpus": "local_files"})
    assert plan.jobs.run("diff").dataset == "local_files"
    assert plan.jobs.run("long_diff").dataset == "long_text"
    assert plan.resolver.tokenizer_owner("long_text") == "local_files"
    long, base = plan.resolver.dataset("long_text"), plan.resolver.dataset("local_files")
    assert long.sources == base.sources
    assert long.upsampling is not None


def test_what_a_derived_run_continues_comes_from_its_base(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "smoke"})
    added = {
        "again": RunEntry(label="again", base="long_diff"),
        "scratch": RunEntry(label="scratch", base="long_diff", init_from=None),
        "twice": RunEntry(label="twice", base="again", init_from="long_diff"),
    }
    plan.resolver.runs.update(inherited(plan.resolver.runs | added, "here"))
    assert plan.jobs.run("again").init_from == "diff"
    assert plan.jobs.run("scratch").init_from is None
    assert plan.jobs.run("twice").init_from == "long_diff"

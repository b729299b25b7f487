"""Every error in config/ is one line: location, key and allowed values."""

from pathlib import Path

import pytest
from refused_config import Case, assert_one_line, put, spoil

from difftransformer.config.resolve import ConfigResolver
from difftransformer.errors import ConfigError

CASES: dict[str, Case] = {
    "unknown key in config.yaml": (
        "config.yaml",
        put("seedz", value=[0]),
        ["config.yaml: seedz: unknown key; did you mean 'seeds'?"],
    ),
    "seeds of a wrong type": ("config.yaml", put("seeds", value="many"), ["seeds", "got 'many'"]),
    "no seeds": ("config.yaml", put("seeds", value=[]), ["seeds", "at least 1"]),
    "a seed twice": ("config.yaml", put("seeds", value=[1, 1]), ["seeds: must be distinct"]),
    "an unknown default target": (
        "config.yaml",
        put("default_targets", value=["tabel6"]),
        ["unknown artifact 'tabel6'; did you mean 'table6'?"],
    ),
    "unknown corpus": ("config.yaml", put("corpus", value="stdlib"), ["unknown dataset 'stdlib'"]),
    "unknown key of a run": (
        "runs.yaml",
        put("runs", "diff", "overide", value={}),
        ["runs.diff.overide: unknown key; did you mean 'overrides'?"],
    ),
    "misspelt model key": (
        "runs.yaml",
        put("runs", "diff", "overrides", value={"model": {"d_modle": 64}}),
        ["runs.diff.overrides: model.d_modle: unknown key; did you mean 'd_model'?"],
    ),
    "an attention key beside attention": (
        "runs.yaml",
        put("runs", "diff", "overrides", value={"model": {"variant": "diff_v1"}}),
        [
            "runs.diff.overrides: model.variant: unknown key; did you mean "
            "'model.attention.variant'?"
        ],
    ),
    "misspelt attention key": (
        "runs.yaml",
        put("runs", "diff", "overrides", "model", "attention", "lambda_innit", value=0.8),
        ["runs.diff", "model.attention", "lambda_innit", "lambda_init"],
    ),
    "unknown variant": (
        "runs.yaml",
        put("runs", "diff", "overrides", "model", "attention", "variant", value="diff_v11"),
        ["runs.diff", "diff_v11", "diff_v1"],
    ),
    "a word where one word or a number may stand": (
        "runs.yaml",
        put("runs", "diff", "overrides", "model", "attention", "lambda_init", value="high"),
        ["lambda_init: input should be 'exponential', or needs a number, got 'high'"],
    ),
    "an unknown key of a group": (
        "runs.yaml",
        put("runs", "diff", "overrides", value={"training": {"learning_rate": 0.002}}),
        [
            "runs.diff.overrides: training.learning_rate: unknown key; allowed: "
            "activation_checkpointing, ",
            " lr, ",
        ],
    ),
    "missing base": (
        "runs.yaml",
        put("runs", "diff", "base", value="transformr"),
        ["unknown base 'transformr'; did you mean 'transformer'?"],
    ),
    "circular bases": (
        "runs.yaml",
        put("runs", "transformer", "base", value="diff"),
        ["bases form a circle"],
    ),
    "no recipe": (
        "runs.yaml",
        put("runs", "lonely", value={"label": "x"}),
        ["runs.lonely: no recipe"],
    ),
    "unknown recipe": (
        "runs.yaml",
        put("runs", "transformer", "recipe", value="ablatoin"),
        [
            "runs.yaml: runs.transformer.recipe: ",
            "unknown recipe 'ablatoin'; did you mean 'ablation'?",
        ],
    ),
    "a number as text": (
        "scales/tiny.yaml",
        put("recipes", "ablation", "training", "weight_decay", value="5e-2"),
        ["recipes.ablation: training.weight_decay: needs a number, got '5e-2'", "write 5.0e-2"],
    ),
    "a negative learning rate": (
        "scales/tiny.yaml",
        put("recipes", "ablation", "training", "weight_decay", value=-1.0),
        ["training.weight_decay", "greater than or equal to 0"],
    ),
    "heads that do not divide": (
        "scales/tiny.yaml",
        put("recipes", "ablation", "model", "attention", "head_dim", value=48),
        ["runs.transformer", "head_dim", "128"],
    ),
    "key-value heads that do not divide": (
        "runs.yaml",
        put("runs", "transformer", "overrides", "model", "attention", "num_kv_heads", value=3),
        ["runs.transformer", "num_kv_heads", "3"],
    ),
    "a corpus smaller than a batch": (
        "scales/tiny.yaml",
        put("datasets", "stdlib_text", "tokens", value=1000),
        ["datasets.stdlib_text.tokens: 1000 is less than one batch"],
    ),
    "less to validate on than one window": (
        "scales/tiny.yaml",
        put("datasets", "stdlib_text", "validation_tokens", value=8),
        ["datasets.stdlib_text.validation_tokens: 8 is less than one window", ": set more, or"],
    ),
    "a context longer than the model": (
        "scales/tiny.yaml",
        put("recipes", "ablation", "training", "seq_len", value=512),
        ["seq_len 512 is longer than max_positions"],
    ),
    "other sequences than the rows of the data": (
        "config.yaml",
        put("overrides", value={"recall_transformer": {"training": {"seq_len": 32}}}),
        [
            "scales/tiny.yaml: run recall_transformer: ",
            "seq_len 32: rows of dataset recall have 65 tokens: set training.seq_len to 64",
        ],
    ),
    "a probe with more needles than there are keys": (
        "config.yaml",
        put(
            "overrides",
            value={
                "recall_transformer": {
                    "training": {"probe": {"needles": [2, 40], "learned_needles": 2}}
                }
            },
        ),
        ["run recall_transformer: training.probe.needles: 40 do not fit", "at most 16"],
    ),
    "a probe that is longer than the model's positions": (
        "config.yaml",
        put("overrides", value={"recall_transformer": {"training": {"probe": {"queries": 500}}}}),
        ["run recall_transformer: training.probe.queries: 500 make rows of 1033 tokens"],
    ),
    "a probe on text": (
        "config.yaml",
        put("overrides", value={"diff": {"training": {"probe": {}}}}),
        ["run diff: training.probe measures recall, dataset stdlib_text has no recall rows"],
    ),
    "documents of rows": (
        "config.yaml",
        put("overrides", value={"recall_transformer": {"training": {"document_mask": True}}}),
        ["run recall_transformer: training.document_mask is for packed text", "leave it out"],
    ),
    "tokens and steps": (
        "scales/tiny.yaml",
        put("recipes", "ablation", "training", "steps", value=10),
        ["exactly one of tokens and steps"],
    ),
    "an unknown dataset": (
        "scales/tiny.yaml",
        put("recipes", "ablation", "dataset", value="stdlib_txt"),
        ["unknown dataset 'stdlib_txt'; did you mean 'stdlib_text'?"],
    ),
    "an unknown run to continue": (
        "runs.yaml",
        put("runs", "long_diff", "init_from", value="dif"),
        ["runs.long_diff.init_from: unknown run 'dif'; did you mean 'diff'?"],
    ),
    "runs that continue each other": (
        "runs.yaml",
        put("runs", "diff", "init_from", value="long_diff"),
        ["init_from: runs form a circle: ", "diff -> long_diff"],
    ),
    "a run that continues another model": (
        "runs.yaml",
        put("runs", "long_diff", "init_from", value="transformer"),
        ["runs.long_diff.init_from: model.attention.variant is diff_v1, in run transformer it is"],
    ),
    "a run that continues a smaller model": (
        "scales/tiny.yaml",
        put("recipes", "long_context", "model", "d_model", value=192),
        ["model.d_model is 192", "it is 128", "rope_theta, max_positions"],
    ),
    "a run that continues on other token ids": (
        "scales/tiny.yaml",
        put("recipes", "long_context", "dataset", value="local_files"),
        ["runs.long_transformer.init_from: dataset local_files has other token ids than"],
    ),
    "rows with another vocabulary": (
        "datasets.yaml",
        put(
            "datasets",
            "recall_long",
            "recall",
            value={"row_length": 257, "num_keys": 48, "num_values": 16},
        ),
        ["dataset recall_long has other token ids than recall"],
    ),
    "an unknown base of a dataset": (
        "datasets.yaml",
        put("datasets", "long_text", "base", value="stdlib"),
        ["datasets.long_text.base: unknown base 'stdlib'", "stdlib_text"],
    ),
    "a derived dataset with its own tokenizer": (
        "scales/tiny.yaml",
        put("datasets", "long_text", "tokenizer", value={"vocab_size": 512}),
        ["datasets.long_text: tokenizer: a dataset with a base has the base's"],
    ),
    "a derived dataset that holds out other documents": (
        "datasets.yaml",
        put("datasets", "long_text", "validation_share", value=0.5),
        ["datasets.long_text: validation_share"],
    ),
    "a derived dataset that holds out other packages": (
        "scales/tiny.yaml",
        put("datasets", "long_text", "sources", value={"stdlib": {"split_by": "document"}}),
        ["datasets.long_text: sources.stdlib.split_by: a dataset with a base has the base's"],
    ),
    "a run of a scale without a label": (
        "scales/tiny.yaml",
        put("runs", value={"lonely": {"base": "diff"}}),
        ["scales/tiny.yaml: runs.lonely: label: required key is missing"],
    ),
    "timings of an unknown evaluation": (
        "scales/tiny.yaml",
        lambda content: content["timings"].update(throughputs={}),
        ["scales/tiny.yaml: timings.throughputs: unknown evaluation", "mean 'throughput'?"],
    ),
    "timings of an evaluation that times nothing": (
        "scales/tiny.yaml",
        lambda content: content["timings"].update(recall={}),
        ["scales/tiny.yaml: timings.recall: recall times nothing; remove the entry"],
    ),
    "settings of an unknown run for one call": (
        "config.yaml",
        put("overrides", value={"dif": {"training": {"lr": 0.002}}}),
        ["config.yaml: overrides: unknown run 'dif'; did you mean 'diff'?"],
    ),
    "an unknown kind of suite": (
        "evaluations.yaml",
        put("suites", "recall", "kind", value="recal"),
        ["suites.recall", "recal"],
    ),
    "more needles asked for than there are": (
        "scales/tiny.yaml",
        put("suites", "needles", "pairs", value=[[2, 3]]),
        ["suites.needles", "[N, R] = [2, 3]", "R is 1 to 2"],
    ),
    "a depth outside the context": (
        "evaluations.yaml",
        put("suites", "needles", "depths", value=[0, 101]),
        ["suites.needles", "depths", "less than or equal to 100, got 101"],
    ),
    "an unknown format of prompts": (
        "evaluations.yaml",
        put("suites", "attention_allocation", "format", value="texts"),
        ["suites.attention_allocation", "'text' or 'recall', got 'texts'"],
    ),
    "prompts in English for models that know none": (
        "scales/tiny.yaml",
        put("suites", "needles", value={"format": "text", "lengths": [64]}),
        ["suites.needles on run recall_transformer", "does not fit a dataset of recall rows"],
    ),
    "prompts longer than the model's positions": (
        "scales/tiny.yaml",
        put("suites", "needles", "lengths", value=[104, 129]),
        ["suites.needles on run recall_transformer", "129 is longer than the model's positions"],
    ),
    "more needles than the haystack holds": (
        "scales/tiny.yaml",
        put("suites", "attention_allocation", "lengths", value=[64]),
        ["suites.attention_allocation on run", "need a haystack of 72 tokens, got 62"],
    ),
    "an unknown source": (
        "datasets.yaml",
        put("datasets", "stdlib_text", "sources", "stdlib", "kind", value="file"),
        ["datasets.stdlib_text", "file"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_errors_are_one_line_and_name_the_location(
    case: str, config_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(config_folder)  # where there is no data/
    assert_one_line(CASES[case], config_folder)


def test_a_key_of_a_setups_base_is_said_to_be_there(config_folder: Path) -> None:
    change = put("recipes", "ablation", "model", "vocab_size", value=3)
    spoil("scales/tiny.yaml", change, config_folder)
    with pytest.raises(ConfigError, match=r"recipes\.ablation: model\.vocab_size: 3 is less than"):
        ConfigResolver.load(config_folder).run("transformer", "size_32")

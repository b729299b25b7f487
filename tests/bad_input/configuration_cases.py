"""Damaged configuration: files, keys, command line and environment; no job may start."""

from finished_work import Work
from spoiling import (
    Call,
    Case,
    Spoil,
    add,
    both,
    folder,
    loop,
    nothing,
    recode,
    remove,
    replace,
    variable,
    write,
)

CONFIG, RUNS, DATASETS = "config/config.yaml", "config/runs.yaml", "config/datasets.yaml"
TINY = "config/scales/tiny.yaml"
CLAIMS = "config/registry.yaml"
TABLE = "config/artifacts/table6.yaml"

check: Call = Work.check


def plan(**overrides: object) -> Call:
    return lambda work: work.plan(**overrides)


def run(entry: str) -> Spoil:
    """Add a run called spoilt to runs.yaml."""
    return add(RUNS, f"  spoilt: {entry}\n")


def recipe(keys: str) -> Spoil:
    """Add a recipe called spoilt to a scale, and a run of it."""
    return both(
        replace(TINY, "\nrecipes:\n", f"\nrecipes:\n  spoilt: {{base: ablation, {keys}}}\n"),
        run("{label: Spoilt, base: diff, recipe: spoilt}"),
    )


CONFIGURATION: dict[str, Case] = {
    "seeds below one": (nothing, plan(seeds=-1), ["--config: seeds", "got -1", "1 to 1000"]),
    "seeds in words": (nothing, plan(seeds="three"), ["--config: seeds", "'three'", "a list"]),
    "a list with a word among seeds": (
        nothing, plan(seeds="[0, a]"), ["--config: seeds[1]: needs a whole number, got 'a'"],
    ),
    "a setting of a run that its recipe does not bear": (
        run("{label: Spoilt, base: diff, overrides: {training: {warmup_steps: 100000}}}"),
        check,
        ["recipes.ablation, changed by ", "runs.spoilt.overrides: training: warmup_steps"],
    ),
    "a key of a run outdented": (
        replace(
            RUNS,
            "    overrides: {model: {attention: {lambda_init: 0.8}}}",
            "  overrides: {model: {}}",
        ),
        check,
        ["runs.yaml: runs: 'overrides' is a key of a run", "indent it below the run it is of"],
    ),
    "settings of a run outdented": (
        run("{label: Spoilt, base: diff, overrides: }"), check,
        ["runs.spoilt.overrides: needs a mapping of keys, got None", "indent what belongs to it"],
    ),
    "a lambda that turns heads around": (
        run("{label: Spoilt, base: diff, overrides: {model: {attention: {lambda_init: 1.4}}}}"),
        check,
        ["runs.spoilt", "lambda_init", "a number below 1, got 1.4"],
    ),
    "a billion seeds": (nothing, plan(seeds=10**12), ["seeds", "got 1000000000000", "1 to 1000"]),
    "a negative seed": (nothing, plan(seeds="[-3]"), ["seeds", "from 0 to 4294967295", "-3"]),
    "a scale in capitals": (nothing, plan(scale="Tiny"), ["'Tiny'", "did you mean 'tiny'?"]),
    "a scale outside its folder": (nothing, plan(scale="../tiny"), ["'../tiny' is no name"]),
    "half an override": (nothing, plan(seeds="[1,"), ["--config seeds", "found '<stream end>'"]),
    "an override that builds objects": (
        nothing, plan(seeds="!!python/object/apply:os.system [x]"),
        ["--config seeds", "could not determine a constructor", "os.system"],
    ),
    "results that run a command": (
        nothing, plan(results="$(touch gone)"),
        ["--config: results", "'$(touch gone)'", "letters, digits", "choose another folder"],
    ),
    "results with a blank": (nothing, plan(results="my results"), ["results", "'my results'"]),
    "tracking switched off without quotes": (
        nothing, plan(tracking={"uri": False}), ["tracking.uri", "got False", "in quotes"],
    ),
    "tracking to nowhere": (
        nothing, plan(tracking={"uri": "foo://x"}),
        ["config.yaml: tracking.uri", "'foo://x'", "off, sqlite:///<file>"],
    ),
    "a password in the address of the store": (
        nothing, plan(tracking={"uri": "postgresql://user:much-too-open@host/mlflow"}),
        ["config.yaml: tracking.uri: the address has a user, a password", "MLFLOW_TRACKING_URI"],
    ),
    "tracking variable": (
        variable("MLFLOW_TRACKING_URI", "nonsense"), check,
        ["environment variable MLFLOW_TRACKING_URI", "'nonsense'", "off, sqlite:///<file>"],
    ),
    "thread variable": (
        variable("OMP_NUM_THREADS", "abc"), check,
        ["environment variable OMP_NUM_THREADS", "'abc'", "a positive integer"],
    ),
    "profiled steps": (
        variable("DIFFTRANSFORMER_PROFILE_STEPS", "-1"), check,
        ["environment variable DIFFTRANSFORMER_PROFILE_STEPS", "'-1'", "a whole number"],
    ),
    "no configuration": (
        remove("config"), check, [f"{CONFIG}: no such file", "name the folder of a configuration"],
    ),
    "a missing file": (remove("config/papers.yaml"), check, ["papers.yaml: no such file"]),
    "no artifacts": (remove("config/artifacts"), check, ["artifacts: no artifacts; restore it"]),
    "an artifact's file with a path in its name": (
        write("config/artifacts/my table.yaml", "title: x\n"), check,
        ["config/artifacts/my table.yaml: a name has letters, digits and _ alone; rename it"],
    ),
    "an empty artifact": (
        write("config/artifacts/mine.yaml", ""), check, ["mine.yaml: title: required key is missi"],
    ),
    "a folder for a file": (folder(RUNS), check, [f"{RUNS}: cannot be read: is a directory"]),
    "a link to itself": (loop(RUNS), check, [f"{RUNS}: cannot be read", "symbolic links"]),
    "an empty file": (write(RUNS, ""), check, [f"{RUNS}: runs: required key is missing"]),
    "a list for a file": (write(RUNS, "- a\n"), check, [RUNS, "a mapping of keys, got list"]),
    "another encoding": (recode(RUNS, "utf-16"), check, [RUNS, "byte 0 is 0xff", "UTF-8"]),
    "a zero byte": (add(RUNS, b"\0"), check, [RUNS, "#x0000", "not allowed"]),
    "a run twice": (add(RUNS, "  diff: {label: x}\n"), check, ["'diff' stands twice; remove one"]),
    "merging twice": (run("{<<: {label: a}, <<: {label: b}}"), check, ["'<<' stands twice"]),
    "an anchor in itself": (run("&a {overrides: *a}"), check, ["an anchor contains itself; write"]),
    "aliases of aliases": (
        write(RUNS, "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"{anchor}: &{anchor} [{', '.join([f'*{previous}'] * 10)}]\n"
            for previous, anchor in zip("abcdefgh", "bcdefghi", strict=True)
        )),
        check, [RUNS, "line 5", "expand to over 100000 values; write them out"],
    ),
    "nested without end": (run("[" * 3000 + "]" * 3000), check, [RUNS, "40 levels; flatten it"]),
    "two documents": (add(RUNS, "---\nruns: {}\n"), check, [RUNS, "found another document"]),
    "a switch for a label": (run("{label: no, base: diff}"), check, ["got False", "in quotes"]),
    "a date for a label": (run("{label: 2024-01-01}"), check, ["runs.spoilt.label: needs text"]),
    "a date that is none": (run("{label: 2024-13-45}"), check, [RUNS, "month must be in 1..12"]),
    "a run without settings": (run(""), check, ["runs.spoilt: needs a mapping of keys, got None"]),
    "a name with a path": (add(RUNS, "  ../x: {label: x}\n"), check, ["'../x' is no name", "_"]),
    "a name with a command": (
        add(RUNS, "  x; rm -rf y: {label: x, base: diff}\n"), check,
        [f"{RUNS}: runs: 'x; rm -rf y' is no name", "letters, digits and _"],
    ),
    "a dataset with a path": (
        add(DATASETS, "  ../x: {base: stdlib_text}\n"), check, [f"{DATASETS}: datasets: '../x' is"],
    ),
    "a run that continues itself": (
        run("{label: x, base: diff, init_from: spoilt}"), check, ["spoilt.init_from", "a circle"],
    ),
    "a key that no setting has": (
        run("{label: x, base: diff, overrides: {optimizer: adam}}"), check,
        ["runs.spoilt.overrides: optimizer: unknown key", "'initializer'"],
    ),
    "a number for settings": (
        run("{label: x, base: diff, overrides: {model: 3}}"), check,
        ["runs.spoilt.overrides: model: needs a mapping of keys, got 3"],
    ),
    "a name for attention": (
        run("{label: x, base: diff, overrides: {model: {attention: diff_v1}}}"), check,
        ["spoilt.overrides: model.attention: needs a mapping of keys, got 'diff_v1'"],
    ),
    "an exponent without a point": (
        recipe("training: {lr: 4e-3}"), check,
        [f"{TINY}: recipes.spoilt: training.lr", "got '4e-3'", "write 4.0e-3"],
    ),
    "a comma for a point": (recipe('training: {lr: "0,004"}'), check, ["lr", "a plain number"]),
    "not a number": (recipe("training: {lr: .nan}"), check, ["lr: needs a finite number, got nan"]),
    "infinity": (recipe("training: {weight_decay: .inf}"), check, ["a finite number, got inf"]),
    "no batch": (recipe("training: {batch_size: 0}"), check, ["batch_size", "greater than 0"]),
    "a list for a number": (recipe("training: {lr: [1.0]}"), check, ["lr: needs a number, got [1"]),
    "tokens in millions": (
        recipe("training: {tokens: 1M}"), check, ["training.tokens", "got '1M'", "write 1000000"],
    ),
    "tokens with a point": (
        recipe("training: {tokens: 1.0e+6}"), check, ["got 1000000.0", "write 1000000"],
    ),
    "tokens in base eight": (
        recipe("training: {tokens: 0100}"), check, [TINY, "YAML reads 0100 as 64; write that"],
    ),
    "tokens in base sixty": (
        recipe("training: {tokens: 10:00:00}"), check, ["YAML reads 10:00:00 as 36000; write that"],
    ),
    "more tokens than there are": (
        recipe(f"training: {{tokens: 1{'0' * 400}}}"), check,
        ["training.tokens", "less than or equal to 1000000000000000"],
    ),
    "a width of millions": (recipe("model: {d_model: 9999999}"), check, ["d_model", "131072, got"]),
    "positions without end": (
        recipe(f"model: {{max_positions: {10**15}}}"), check, ["max_positions", "134217728, got"],
    ),
    "a vocabulary without end": (
        recipe(f"model: {{vocab_size: {10**12}}}"), check, ["model.vocab_size", "16777216, got"],
    ),
    "a vocabulary smaller than the data's": (
        recipe("model: {vocab_size: 64}"), check,
        ["recipes.spoilt: model.vocab_size: 64 is less than the 1024", "stdlib_text", "leave it"],
    ),
    "a switch in quotes": (
        recipe('training: {compile: "no"}'), check, ["true or false, got 'no'", "take the quotes"],
    ),
    "a dataset that no file has": (
        replace(TINY, "\ndatasets:\n", "\ndatasets:\n  stdlib_txt: {tokens: 4}\n"), check,
        [f"{TINY}: datasets: unknown dataset 'stdlib_txt'; did you mean 'stdlib_text'?"],
    ),
    "a suite that no file has": (
        replace(TINY, "\nsuites:\n", "\nsuites:\n  outlier: {seq_len: 4}\n"), check,
        [f"{TINY}: suites: unknown suite 'outlier'; did you mean 'outliers'?"],
    ),
    "a rate of a run that is not there": (
        replace(TINY, "\nlearning_rates:\n", "\nlearning_rates:\n  transformr: 1.0e-3\n"), check,
        [f"{TINY}: learning_rates: unknown run 'transformr'; did you mean 'transformer'?"],
    ),
    "weights to keep of a run that may end early": (
        recipe("training: {save_checkpoints_at: [0.5], on_divergence: record}"), check,
        ["save_checkpoints_at and on_divergence: record exclude each other"],
    ),
    "a pretrained model that continues ours": (
        run("{label: Spoilt, pretrained: models/x, init_from: diff}"), check,
        ["runs.spoilt", "a pretrained model is not trained: take out ['init_from']"],
    ),
    "a source with a sign in its name": (
        add(DATASETS, "  spoilt:\n    sources: {a+b: {kind: builtin, name: recall}}\n"), check,
        ["datasets.spoilt", "a+b"],
    ),
    "a share in per cent": (
        add(DATASETS, "  spoilt: {base: stdlib_text, max_document_tokens: 5%}\n"), check,
        ["datasets.spoilt: max_document_tokens", "got '5%'", "without unit"],
    ),
    "a claim twice in the registry": (
        replace(CLAIMS, "  V1.loss:", "  V1.equal_tokens:"), check,
        [CLAIMS, "'V1.equal_tokens' stands twice; remove one"],
    ),
}  # fmt: skip

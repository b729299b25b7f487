# Contract: PLAN from the Snakefile. Gives the other files ROOT, ENVIRONMENT and the get_* functions
# that turn wildcards, which are ids only, into slices, fingerprints and inputs.

ROOT = PLAN.root
ENVIRONMENT = "../../envs/cpu.yaml"


wildcard_constraints:
    scale=PLAN.scale,
    dataset=r"\w+",
    run=r"\w+",
    seed=r"\d+",
    suite=r"\w+",
    judge=r"\w+",
    artifact=r"\w+",


def get_dataset_slice(wildcards):
    return PLAN.dataset_slice(wildcards.dataset)


def get_run_slice(wildcards):
    return PLAN.run_slice(wildcards.run)


def get_suite_slice(wildcards):
    return PLAN.suite_slice(wildcards.suite)


def get_evaluation_slice(wildcards):
    return PLAN.evaluation_slice(wildcards.suite, wildcards.run)


def get_table_slice(wildcards):
    return PLAN.artifact_slice(wildcards.artifact, "table")


def get_figure_slice(wildcards):
    return PLAN.artifact_slice(wildcards.artifact, "figure")


def get_corpus(wildcards):
    return PLAN.corpus_files(wildcards.dataset)


def get_tokenizer(wildcards):
    return PLAN.tokenizer_file(wildcards.dataset)


def get_base_tokenizer(wildcards):
    return PLAN.base_tokenizer(wildcards.dataset)


def get_parent_result(wildcards):
    return PLAN.parent_result(wildcards.run, wildcards.seed)


def get_parent_weights(wildcards):
    return PLAN.parent_weights(wildcards.run, wildcards.seed)


def get_training_data(wildcards):
    return PLAN.manifest(wildcards.run)


def get_training_result(wildcards):
    return PLAN.training_file(wildcards.run, int(wildcards.seed))


def get_weights(wildcards):
    return PLAN.weights(wildcards.run, int(wildcards.seed))


def get_benchmarks(wildcards):
    return PLAN.benchmark_files(wildcards.suite)


def get_frequent_ngrams(wildcards):
    return PLAN.ngrams_file(wildcards.suite, wildcards.run)


def get_sums(files):
    return [str(Path(file).with_suffix(".sha256.json")) for file in files]


def get_judgement_slice(wildcards):
    return PLAN.judgement_slice(wildcards.judge, wildcards.suite, wildcards.run)


def get_results(wildcards):
    return PLAN.results(wildcards.artifact)


def get_table_histories(wildcards):
    return PLAN.table_histories(wildcards.artifact)


def get_judgements(wildcards):
    return PLAN.judgement_details(wildcards.artifact)


def get_details(wildcards):
    return PLAN.details(wildcards.artifact)


def get_histories(wildcards):
    return PLAN.histories(wildcards.artifact)


# One workflow at a time builds a scale. Snakemake's own lock outlives a killed process and would ask
# for --unlock, so the profiles switch it off; this one goes with its process.
onstart:
    try:
        hold(
            Path(PLAN.layout.home, "state", "workflow.lock"),
            f"building {PLAN.layout.home} already",
        )
    except (UserError, OSError) as error:
        sys.exit(f"error: {refusal(error)}")
    # What is forced starts afresh, though its state would let it go on from where it had finished.
    said = workflow.dag_settings
    asked = [*said.forcerun, *(said.targets if said.forcetargets else [])]
    asked += ["pretrain"] if said.forceall else []
    os.environ.update(DIFFTRANSFORMER_AFRESH=" ".join(asked))
    for name in filter(PLAN.artifacts.__contains__, asked):
        print(
            f"{name}: a target has no work of its own to force; `make rerun ABLATION={name}` trains"
            " and evaluates it again",
            file=sys.stderr,
        )


# Jobs leave their tracking in local journals; one process sends them all. What it cannot send
# stays for the next time, so the store never decides how a workflow ends.
onsuccess:
    shell("difftransformer sync_tracking --results {ROOT} || true")


onerror:
    shell("difftransformer sync_tracking --results {ROOT} || true")

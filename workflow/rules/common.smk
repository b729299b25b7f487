# Contract: PLAN from the Snakefile. Gives the other files JOBS, ARTIFACTS, ROOT, CORES and the get_* functions
# that turn wildcards, which are ids only, into slices, fingerprints and inputs.

JOBS = PLAN.jobs
ARTIFACTS = PLAN.artifacts
ROOT = JOBS.layout.root
CORES = workflow.resource_settings.cores or 1
"""Of one machine; where jobs run elsewhere, the most that one of them takes."""


wildcard_constraints:
    scale=JOBS.scale,
    dataset=r"\w+",
    run=r"\w+",
    seed=r"\d+",
    suite=r"\w+",
    judge=r"\w+",
    artifact="|".join(ARTIFACTS.known),
    timing=r"\w+",


def get_dataset_slice(wildcards):
    return JOBS.dataset_slice(wildcards.dataset)


def get_run_slice(wildcards):
    """Of what does not fit the machine that the scale is planned for no job starts."""
    try:
        PLAN.require_room([wildcards.run])
    except UserError as error:
        sys.exit(f"error: {refusal(error)}")
    return JOBS.run_slice(wildcards.run)


def get_ngrams_slice(wildcards):
    return JOBS.ngrams_slice(wildcards.suite)


def get_evaluation_slice(wildcards):
    return JOBS.evaluation_slice(wildcards.suite, wildcards.run)


def get_sums(files):
    return [str(Path(file).with_suffix(".sha256.json")) for file in files]


def get_judgement_slice(wildcards):
    return JOBS.judgement_slice(wildcards.judge, wildcards.suite, wildcards.run)


def get_timing_slice(wildcards):
    return ARTIFACTS.timing_file(wildcards.timing)


def get_table_slice(wildcards):
    return ARTIFACTS.slice_file(wildcards.artifact, "table")


def get_figure_slice(wildcards):
    return ARTIFACTS.slice_file(wildcards.artifact, "figure")


def get_corpus(wildcards):
    return JOBS.corpus_files(wildcards.dataset)


def get_tokenizer(wildcards):
    return JOBS.tokenizer_file(wildcards.dataset)


def get_base_tokenizer(wildcards):
    return JOBS.base_tokenizer(wildcards.dataset)


def get_parent_result(wildcards):
    return JOBS.parent_result(wildcards.run, wildcards.seed)


def get_parent_weights(wildcards):
    return JOBS.parent_weights(wildcards.run, wildcards.seed)


def get_training_data(wildcards):
    return JOBS.manifest(wildcards.run)


def get_measured_data(wildcards):
    return JOBS.measured_manifest(wildcards.suite, wildcards.run)


def get_training_result(wildcards):
    return JOBS.training_file(wildcards.run, int(wildcards.seed))


def get_weights(wildcards):
    return JOBS.weights(wildcards.run, int(wildcards.seed))


def get_benchmarks(wildcards):
    return JOBS.benchmark_files(wildcards.suite)


def get_frequent_ngrams(wildcards):
    return JOBS.ngrams_file(wildcards.suite, wildcards.run)


def get_results(wildcards):
    return ARTIFACTS.results(wildcards.artifact)


def get_table_histories(wildcards):
    return ARTIFACTS.table_histories(wildcards.artifact)


def get_judgements(wildcards):
    return ARTIFACTS.judgement_details(wildcards.artifact)


def get_details(wildcards):
    return ARTIFACTS.details(wildcards.artifact)


def get_histories(wildcards):
    return ARTIFACTS.histories(wildcards.artifact)


def get_asked():
    """Artifacts that the command line asks for: the report is on these."""
    return PLAN.asked(workflow.dag_settings.targets if workflow.dag_settings else ())


# One workflow at a time builds a scale. Snakemake's own lock outlives a killed process and would ask
# for --unlock, so the profiles switch it off; this one goes with its process.
onstart:
    try:
        hold(
            Path(JOBS.layout.home, "state", "workflow.lock"),
            f"building {JOBS.layout.home} already",
        )
    except (UserError, OSError) as error:
        sys.exit(f"error: {refusal(error)}")
    # What is forced starts afresh, though its state would let it go on from where it had finished.
    said = workflow.dag_settings
    asked = [*said.forcerun, *(said.targets if said.forcetargets else [])]
    asked += ["pretrain", "adapt"] if said.forceall else []
    os.environ.update(DIFFTRANSFORMER_AFRESH=" ".join(asked))
    for name in filter(ARTIFACTS.known.__contains__, asked):
        print(
            f"{name}: a target has no work of its own to force; `make rerun ABLATION={name}` trains"
            " and evaluates it again",
            file=sys.stderr,
        )


# Jobs leave their tracking in local journals; one process sends them all. What it cannot send
# stays for the next time, so the store never decides how a workflow ends.
onsuccess:
    shell("difftransformer sync_tracking --results {ROOT} || true")
    print(*PLAN.ending(), sep="\n", file=sys.stderr)


onerror:
    shell("difftransformer sync_tracking --results {ROOT} || true")

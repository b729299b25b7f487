# Contract: PLAN from the Snakefile. Gives the other files JOBS, ARTIFACTS, ROOT, CORES and the get_* functions
# that turn wildcards, which are ids only, into slices, fingerprints and inputs.

from snakemake.jobs import Job

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


_postprocess = Job.postprocess


async def _marked_if_failed(job, *given, error=False, **more):
    """Of a job that fails Snakemake notes what it was to be made with, and with `keep-incomplete`, as on clusters,
    leaves what was made before: it would pass for made with that."""
    await _postprocess(job, *given, error=error, **more)
    if error and job.dag.workflow.execution_settings.keep_incomplete:
        job.dag.workflow.persistence.started(job)


if not workflow.remote_exec:
    Job.postprocess = _marked_if_failed


def any_of(names):
    """The constraint of a wildcard that is one of these names."""
    return "|".join(names) or "(?!)"


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


def get_descriptions(files):
    """What lies beside tokenizers and says of which kind they are."""
    return [str(Path(file).with_name("tokenizer_config.json")) for file in files]


def get_datasets(manifests):
    """All else of datasets. Their manifests say of what they consist, so this is no reason to run."""
    return [
        ancient(str(Path(manifest).with_name(name)))
        for manifest in manifests
        for name in ("shards", "tokenizer.json", "tokenizer_config.json")
    ]


def get_judgement_slice(wildcards):
    return JOBS.judgement_slice(wildcards.judge, wildcards.suite, wildcards.run)


def get_timing_slice(wildcards):
    return ARTIFACTS.timing_file(wildcards.timing)


def get_table_slice(wildcards):
    return ARTIFACTS.slice_file(wildcards.artifact, "table")


def get_figure_slice(wildcards):
    return ARTIFACTS.slice_file(wildcards.artifact, "figure")


def on_this_machine(listings):
    """The user's files are on this machine, wherever results are stored: without a shared file system
    the jobs that read them run here. A listing is named by its content, so its time does not count.
    """
    return [ancient(local(listing)) for listing in listings]


def get_corpus(wildcards):
    return on_this_machine(JOBS.corpus(wildcards.dataset))


def get_tokenizer(wildcards):
    return JOBS.tokenizer_file(wildcards.dataset)


def get_base_tokenizer(wildcards):
    return JOBS.base_tokenizer(wildcards.dataset)


def get_parent_result(wildcards):
    return JOBS.parent_result(wildcards.run, wildcards.seed)


def get_parent_weights(wildcards):
    files = JOBS.parent_weights(wildcards.run, wildcards.seed)
    return on_this_machine(files) if JOBS.foreign.includes(wildcards.run) else files


def get_parent_model(wildcards):
    return map(ancient, JOBS.parent_beside_weights(wildcards.run, wildcards.seed))


def get_training_data(wildcards):
    return JOBS.manifest(wildcards.run)


def get_measured_data(wildcards):
    return JOBS.measured_manifest(wildcards.suite, wildcards.run)


def get_training_result(wildcards):
    return JOBS.training_file(wildcards.run, int(wildcards.seed))


def get_weights(wildcards):
    files = JOBS.weights(wildcards.run, int(wildcards.seed))
    return files if JOBS.trained(wildcards.run) else on_this_machine(files)


def get_model(wildcards):
    """All else of a model. Its result names it with its sums, so this is no reason to run."""
    read = JOBS.beside_weights(wildcards.suite, wildcards.run, int(wildcards.seed))
    return map(ancient, read)


def get_benchmarks(wildcards):
    return on_this_machine(JOBS.benchmarks(wildcards.suite))


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


def get_partitions():
    """Partitions that jobs are sent to, but for those of another cluster: each job would be refused, time and again."""
    asked = [job.resources for job in workflow.dag.needrun_jobs()]
    elsewhere = ("slurm_cluster", "cluster", "clusters")
    here = (one for one in asked if not any(map(one.get, elsewhere)))
    return {*filter(None, (one.get("slurm_partition") for one in here))}


# One workflow at a time builds a scale. Snakemake's own lock outlives a killed process and would ask
# for --unlock, so the profiles switch it off; this one goes with its process.
onstart:
    try:
        hold(
            Path(JOBS.layout.home, "state", "workflow.lock"),
            f"building {JOBS.layout.home} already",
        )
        if getattr(workflow.executor_plugin, "name", None) == "slurm":
            require_partitions(get_partitions())
    except (UserError, OSError) as error:
        sys.exit(f"error: {refusal(error)}")
    # A forced training starts from scratch, though its checkpoint would let it resume.
    said = workflow.dag_settings
    asked = [*said.forcerun, *(said.targets if said.forcetargets else [])]
    asked += ["pretrain", "extend_context", "adapt"] if said.forceall else []
    os.environ.update(DIFFTRANSFORMER_FROM_SCRATCH=" ".join(asked))
    for name in filter(ARTIFACTS.known.__contains__, asked):
        print(
            f"{name}: a target has no work of its own to force; `make rerun ABLATION={name}` trains"
            " and evaluates it again",
            file=sys.stderr,
        )
    for runs in PLAN.equal_trainings(get_asked()):
        print(
            f"{', '.join(runs)}: one and the same training at scale {JOBS.scale}, done for each name; `stand_ins`"
            " of the scale, or one name, has it done once",
            file=sys.stderr,
        )
    if exploratory := ARTIFACTS.exploratory():
        print(
            f"seeds {', '.join(map(str, exploratory))} are exploratory at scale {JOBS.scale}: their results had been"
            " looked at, so tables show them and they test no claim; seeds=3 takes three others",
            file=sys.stderr,
        )
    # How many jobs may start in a second is no question on one machine. Snakemake would ask it again a
    # second after each look at what is ready, once for every job that has ended: dozens of looks a second.
    if workflow.local_exec:
        workflow.scheduler.job_rate_limiter = None
    # Last, since jobs start warm in the environment that they would have had anyway: Snakemake's to jobs of
    # one thread. In a container or on another machine there is nothing to connect to.
    if workflow.local_exec and not workflow.deployment_settings.deployment_method:
        threads = "OMP GOTO OPENBLAS MKL NUMEXPR".split()
        variables = {f"{name}_NUM_THREADS": "1" for name in threads}
        variables |= {"VECLIB_MAXIMUM_THREADS": "1"}
        variables |= dict.fromkeys(
            ("TMPDIR", "TMP", "TEMPDIR", "TEMP"), gettempdir()
        )
        warm.start(
            shutil.which("difftransformer"),
            variables,
            common_modules(PLAN, get_asked()),
        )


# Jobs leave their tracking in local journals; one process sends them all. What it cannot send
# stays for the next time, so neither the store nor an impatient user decides how a workflow ends.
def send_journals():
    """False: interrupted; then nothing that takes time is begun."""
    try:
        shell("difftransformer sync_tracking --results {ROOT} || true")
    except KeyboardInterrupt:
        print(
            "warning: what is left of the tracking goes with the next call",
            file=sys.stderr,
        )
        return False
    return True


# Another head shall know with which settings the files in a bucket were made.
def share_what_is_known():
    if BUCKET:
        try:
            share_records(BUCKET, RECORDS)
        except UserError as error:
            print(f"warning: {error}", file=sys.stderr)


onsuccess:
    share_what_is_known()
    sent, state_url = send_journals(), os.environ.get("DIFFTRANSFORMER_STATE")
    # Copies of checkpoints are kept until what came of them is where it belongs.
    try:
        if sent and state_url:
            forget_finished(
                state_url,
                JOBS.scale,
                lambda run, seed: exists(JOBS.layout.training(run, int(seed))),
            )
        lines = PLAN.ending()
        if BUCKET and exists(JOBS.layout.report_sums):
            lines.append(f"report: {BUCKET}/{JOBS.layout.page('index')}")
        sys.stderr.writelines(f"{line}\n" for line in lines)
    except UserError as error:
        print(f"warning: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print(
            "warning: stopped from the keyboard; all jobs are done", file=sys.stderr
        )


onerror:
    share_what_is_known()
    send_journals()

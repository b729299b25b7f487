# Contract: PLAN, JOBS and ARTIFACTS. What happens before the first job and after the last one.


def partitions():
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
            Path(JOBS.layout.workflow_lock),
            f"building {JOBS.layout.home} already",
        )
        if getattr(workflow.executor_plugin, "name", None) == "slurm":
            require_partitions(partitions())
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
    for runs in PLAN.equal_trainings(asked_for()):
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
    # On one machine no limit of starts per second is needed. With one, each job that ends begins another chain of
    # timers that look at all ready jobs once a second, so that hundreds of jobs keep a core busy.
    # snakemake/snakemake#3744
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
            common_modules(PLAN, asked_for()),
        )


# Jobs leave their tracking in local histories; one process sends them all. What it cannot send
# stays for the next time, so neither the store nor an impatient user decides how a workflow ends.
def send_histories():
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
    sent, state_url = send_histories(), os.environ.get("DIFFTRANSFORMER_STATE")
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
    send_histories()

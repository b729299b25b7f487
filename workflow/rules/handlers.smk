# Contract: needs PLAN, JOBS and ARTIFACTS. Runs before the first job and after the last one.


def partitions():
    """Slurm partitions of the planned jobs, without those of other clusters.

    Slurm would refuse each job of an unknown partition, at each retry.
    """
    resources = [job.resources for job in workflow.dag.needrun_jobs()]
    other_cluster = ("slurm_cluster", "cluster", "clusters")
    here = (job for job in resources if not any(map(job.get, other_cluster)))
    return {*filter(None, (job.get("slurm_partition") for job in here))}


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
        sys.exit(f"error: {describe_error(error)}")
    # A forced training starts from scratch, though its checkpoint would let it resume.
    settings = workflow.dag_settings
    forced = [
        *settings.forcerun,
        *(settings.targets if settings.forcetargets else []),
    ]
    forced += ["pretrain", "extend_context", "adapt"] if settings.forceall else []
    os.environ.update(DIFFTRANSFORMER_FROM_SCRATCH=" ".join(forced))
    for name in filter(ARTIFACTS.available.__contains__, forced):
        print(
            f"{name}: a target has no work of its own to force; `make rerun ABLATION={name}` trains"
            " and evaluates it again",
            file=sys.stderr,
        )
    for runs in PLAN.equal_trainings(requested()):
        print(
            f"{', '.join(runs)}: the same training at scale {JOBS.scale}, repeated for each name; to train"
            " once, use one name or `proxies` of the scale",
            file=sys.stderr,
        )
    if exploratory := ARTIFACTS.exploratory():
        print(
            f"seeds {', '.join(map(str, exploratory))} are exploratory at scale {JOBS.scale}: their results were seen before,"
            " so tables show them but they test no claim; seeds=3 takes three others",
            file=sys.stderr,
        )
    # On one machine no limit of starts per second is needed. With one, each job that ends begins another chain of
    # timers that look at all ready jobs once a second, so that hundreds of jobs keep a core busy.
    # snakemake/snakemake#3744
    if workflow.local_exec:
        workflow.scheduler.job_rate_limiter = None
    # Last, since forked jobs get the environment of this moment, with the variables that Snakemake sets for jobs
    # of one thread. Jobs in a container or on another machine cannot be forked here.
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
            common_modules(PLAN, requested()),
        )


# Jobs write their tracking to local histories, and one process sends them all. What cannot be sent now is sent
# by the next call, so neither the store nor Ctrl-C changes how a workflow ends.
def send_histories():
    """Send the histories of all jobs; False if interrupted: then nothing slow must follow."""
    try:
        shell("difftransformer sync-tracking --results {ROOT} || true")
    except KeyboardInterrupt:
        print(
            "warning: what is left of the tracking goes with the next call",
            file=sys.stderr,
        )
        return False
    return True


# A later Snakemake process elsewhere needs the settings and code that made the files in a bucket.
def share_build_records():
    if BUCKET:
        try:
            share_records(BUCKET, RECORDS)
        except UserError as error:
            print(f"warning: {error}", file=sys.stderr)


onsuccess:
    share_build_records()
    sent, state_url = send_histories(), os.environ.get("DIFFTRANSFORMER_STATE")
    # Copies of checkpoints stay until the results of their trainings are stored.
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
            "warning: stopped from the keyboard; all jobs are done",
            file=sys.stderr,
        )


onerror:
    share_build_records()
    send_histories()

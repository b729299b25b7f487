# Contract: PLAN from the Snakefile. Gives the other files JOBS, ARTIFACTS, ROOT, LAYOUT, CORES, the shell command STEP
# of all rules, and functions that turn wildcards, which are ids only, into inputs by name.
import json

from snakemake.jobs import Job

JOBS = PLAN.jobs
ARTIFACTS = PLAN.artifacts
ROOT = JOBS.layout.root
LAYOUT = Layout(ROOT, "{scale}")
"""Paths of rules, where ids are wildcards."""
CORES = workflow.resource_settings.cores or 1
"""Of one machine; where jobs run elsewhere, the most that one of them takes."""

STEP = (
    "difftransformer step {params.rule} --config {params.config:q} --code '{params.code}'"
    " --threads {threads} --log {log:q} <<< {params.files:q}"
)
"""What every job runs. Results can be thousands of files, more than an argument may hold: they come by stdin."""


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


# With `keep-incomplete`, as on clusters, a failed job leaves what was made before, and Snakemake records it as made with
# the settings of the job that failed: the next call would take it for up to date. snakemake/snakemake#3808
async def _marked_if_failed(job, *given, error=False, **more):
    await _postprocess(job, *given, error=error, **more)
    if error and job.dag.workflow.execution_settings.keep_incomplete:
        job.dag.workflow.persistence.started(job)


if not workflow.remote_exec:
    Job.postprocess = _marked_if_failed


def files(wildcards, input, output):
    """The files of a job by the names that they have in it, as JSON for STEP."""

    def by_name(known):
        return {
            name: [one] if isinstance(one, str) else [*one]
            for name, one in known.items()
        }

    return json.dumps(
        {
            "inputs": by_name(input),
            "outputs": by_name(output),
            "seed": int(wildcards.get("seed", 0)),
            "results": ROOT,
        }
    )


def asked_for():
    """Artifacts that the command line asks for: the report is on these."""
    return PLAN.asked(workflow.dag_settings.targets if workflow.dag_settings else ())


def any_of(names):
    """The constraint of a wildcard that is one of these names."""
    return "|".join(names) or "(?!)"


def run_config(wildcards):
    """For a training that does not fit the machine of its scale no job starts."""
    try:
        PLAN.require_room([wildcards.run])
    except UserError as error:
        sys.exit(f"error: {refusal(error)}")
    return JOBS.run_slice(wildcards.run)


def on_this_machine(listings):
    """The user's files are on this machine, wherever results are stored: without a shared file system
    the jobs that read them run here. A listing is named by its content, so its time does not count.
    """
    return [ancient(local(listing)) for listing in listings]


def beside(names, files):
    """What is read beside files. Those contain its digests, so that it is no reason to run."""
    return [
        ancient(str(Path(file).with_name(name))) for file in files for name in names
    ]


def with_suffix(suffix, files):
    return [str(Path(file).with_suffix(suffix)) for file in files]


def data(manifests):
    """A packed dataset by its manifest."""
    names = ("shards", "tokenizer.json", "tokenizer_config.json")
    return {"data": manifests, "dataset": beside(names, manifests)}


def tokenizer(files):
    """A tokenizer, and the file beside it that says of which kind it is."""
    return {
        "tokenizer": files,
        "description": [
            str(Path(file).with_name("tokenizer_config.json")) for file in files
        ],
    }


def tokenizer_inputs(wildcards):
    return {
        "corpus": on_this_machine(JOBS.corpus(wildcards.dataset)),
        **tokenizer(JOBS.base_tokenizer(wildcards.dataset)),
    }


def tokenize_inputs(wildcards):
    return {
        "corpus": on_this_machine(JOBS.corpus(wildcards.dataset)),
        **tokenizer(JOBS.tokenizer_file(wildcards.dataset)),
    }


def training_inputs(wildcards):
    run, seed = wildcards.run, int(wildcards.seed)
    weights = JOBS.parent_weights(run, seed)
    return {
        **data(JOBS.manifest(run)),
        "model": JOBS.parent_result(run, seed),
        "weights": (
            on_this_machine(weights) if JOBS.foreign.includes(run) else weights
        ),
        "beside": [*map(ancient, JOBS.parent_beside_weights(run, seed))],
    }


def evaluation_inputs(wildcards):
    suite, run, seed = wildcards.suite, wildcards.run, int(wildcards.seed)
    weights, ngrams = JOBS.weights(run, seed), JOBS.ngrams_file(suite, run)
    return {
        "model": JOBS.training_file(run, seed),
        "weights": weights if JOBS.trained(run) else on_this_machine(weights),
        "beside": [*map(ancient, JOBS.beside_weights(suite, run, seed))],
        **data(JOBS.measured_manifest(suite, run)),
        "ngrams": ngrams,
        "sums": with_suffix(".sha256.json", ngrams),
        "benchmarks": on_this_machine(JOBS.benchmarks(suite)),
    }

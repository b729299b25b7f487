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
"""Cores of this machine; where jobs run elsewhere, the most that one job takes."""

STEP = (
    "difftransformer step {params.rule} --job-config {params.config:q} --code '{params.code}'"
    " --threads {threads} --log {log:q} <<< {params.files:q}"
)
"""Shell command of every job. Its files are passed by stdin: thousands of paths are too long for an argument."""


wildcard_constraints:
    scale=JOBS.scale,
    dataset=r"\w+",
    run=r"\w+",
    seed=r"\d+",
    suite=r"\w+",
    judge=r"\w+",
    artifact="|".join(ARTIFACTS.available),
    timing=r"\w+",


_postprocess = Job.postprocess


# With `keep-incomplete`, as on clusters, the outputs of an earlier job survive a failed one. Snakemake records them as made
# with the settings of the failed job, so the next call would consider them up to date. snakemake/snakemake#3808
async def _mark_if_failed(job, *args, error=False, **kwargs):
    await _postprocess(job, *args, error=error, **kwargs)
    if error and job.dag.workflow.execution_settings.keep_incomplete:
        job.dag.workflow.persistence.started(job)


if not workflow.remote_exec:
    Job.postprocess = _mark_if_failed


def files(wildcards, input, output):
    """Input and output files of a job by the names of its rule, as JSON for STEP."""

    def by_name(named):
        return {
            name: [paths] if isinstance(paths, str) else [*paths]
            for name, paths in named.items()
        }

    return json.dumps(
        {
            "inputs": by_name(input),
            "outputs": by_name(output),
            "seed": int(wildcards.get("seed", 0)),
            "results": ROOT,
        }
    )


def requested():
    """Artifacts that the command line names; the report is about these."""
    return PLAN.requested_artifacts(
        workflow.dag_settings.targets if workflow.dag_settings else ()
    )


def any_of(names):
    """Pattern of a wildcard that is one of these names; without names it matches nothing."""
    return "|".join(names) or "(?!)"


def run_config(wildcards):
    """Config of a training; exits before the first job if the machine of the scale is too small."""
    try:
        PLAN.require_room([wildcards.run])
    except UserError as error:
        sys.exit(f"error: {describe_error(error)}")
    return JOBS.run_config_file(wildcards.run)


def on_this_machine(listings):
    """Mark listings of the user's files as local, whatever their modification time.

    The files stay on this machine wherever results are stored; without a shared file system the jobs
    that read them run here. The name of a listing contains the digest of its content.
    """
    return [ancient(local(listing)) for listing in listings]


def beside(names, files):
    """Files next to others that contain their digests, so their modification times do not count."""
    return [
        ancient(str(Path(file).with_name(name))) for file in files for name in names
    ]


def with_suffix(suffix, files):
    return [str(Path(file).with_suffix(suffix)) for file in files]


def data(manifests):
    """Inputs of a job that reads a packed dataset."""
    names = ("shards", "tokenizer.json", "tokenizer_config.json")
    return {"data": manifests, "dataset": beside(names, manifests)}


def tokenizer(files):
    """Inputs of a job that reads a tokenizer: tokenizer.json and tokenizer_config.json."""
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
    parent = JOBS.resolver.entry(run).init_from
    inputs = data(JOBS.manifest(run)) | {"model": [], "weights": [], "beside": []}
    if parent is None:
        return inputs
    weights = JOBS.weights(parent, seed)
    return inputs | {
        "model": JOBS.training_file(parent, seed),
        "weights": (
            on_this_machine(weights) if JOBS.pretrained_runs.includes(run) else weights
        ),
        "beside": [*map(ancient, JOBS.beside_weights(None, parent, seed))],
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

# Entry of the pipeline. `snakemake --list-target-rules` names everything that can be built.
import os
import shutil
import signal
import sys
from pathlib import Path
from tempfile import gettempdir

from snakemake.utils import min_version

from difftransformer.machine import relax_gc

relax_gc()  # before any import of torch

from difftransformer.config.folders import as_named
from difftransformer.config.project import parse_settings
from difftransformer.errors import UserError
from difftransformer.machine import warm
from difftransformer.machine.gpus import gpu_slots
from difftransformer.machine.slurm import require_partitions
from difftransformer.planning.imports import common_modules
from difftransformer.planning.plan import Plan
from difftransformer.provenance.environment import check_variables, require_own_package
from difftransformer.provenance.layout import Layout
from difftransformer.provenance.storage import require_writable
from difftransformer.provenance.command_errors import describe_error
from difftransformer.provenance.shared_records import fetch_records, share_records
from difftransformer.tracking.address import set_default_uri
from difftransformer.tracking.run_context import hold
from difftransformer.training.mirror import forget_finished
from snakemake_logger_plugin_difftransformer import set_targets

min_version("9.27")


# Used with `--sdm apptainer` only; docs/gpu.md describes how to build it.
container: "envs/difftransformer.sif"


# Jobs call `difftransformer` by name; it is installed next to the Python that runs this.
os.environ.update(
    PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()])
)

# Slurm sends this to all processes of a job before its time limit. Training handles it; the processes that
# started it must survive it.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)

# With no core Snakemake would wait forever.
_cores = workflow.resource_settings.cores
if _cores is not None and _cores < 1:
    sys.exit(
        f"error: --cores {_cores}: nothing could ever run; give a number from 1, or all"
    )

# A misspelled variable would otherwise be ignored silently.
try:
    check_variables()
    if not workflow.remote_exec:  # a pod has the package of its image
        require_own_package(Path(workflow.basedir))
except UserError as error:
    sys.exit(f"error: {error}")

# Without a limit as many jobs as there are cores would share the GPUs; `--resources gpu=N` sets another limit.
# Where jobs run elsewhere, the GPUs of this machine limit nothing.
try:
    _places, _limits = gpu_slots(), workflow.resource_settings.resources
    if workflow.local_exec and "gpu" not in _limits and _places:
        workflow.register_resource("gpu", _places)
except UserError as error:
    sys.exit(f"error: {error}")

# Where Snakemake records the settings and code that made each file.
RECORDS = Path(".snakemake", "metadata")
BUCKET = None  # address of the results in object storage

# All configuration is read and checked here, before any job starts. What --config and --configfile set is read
# again: Snakemake's own readers take the last of two equal keys, and 010 for 8 or 10.
try:
    PLAN = Plan.load(
        Path("config"),
        parse_settings(workflow.config_settings.config_args),
        [as_named(Path(file)) for file in workflow.config_settings.configfiles],
    )
    if not {"--list-target-rules", "--list-rules", "--lint"} & set(sys.argv):
        PLAN.require_writable()
    _storage = workflow.storage_settings
    if _storage.default_storage_provider and PLAN.resolver.project.pretrained:
        raise UserError(
            "pretrained: transformers decides of which files an adapted model consists, so no rule declares"
            " them all: keep results on a disk that all jobs see, not in object storage"
        )
    if _storage.default_storage_provider == "s3":
        BUCKET = _storage.default_storage_prefix
        require_writable(BUCKET)
        if not workflow.remote_exec:
            fetch_records(BUCKET, RECORDS)
            # Without this folder Snakemake considers the records to be of an old version.
            RECORDS.with_name("incomplete").mkdir(parents=True, exist_ok=True)
        from snakemake_storage_plugin_s3 import StorageObject

        # The plugin caches that a folder is missing and would not find what a pod has written to it since; tests/storage
        # has pods that write folders.
        StorageObject.is_dir = lambda self: any(self.get_subkeys())
    if not workflow.remote_exec and (_state := os.environ.get("DIFFTRANSFORMER_STATE")):
        require_writable(_state)
except (UserError, OSError) as error:
    sys.exit(f"error: {describe_error(error)}")

# The environment takes precedence over config.yaml.
set_default_uri(PLAN.resolver.project.tracking.uri)


# A bare call takes the first rule of this file; included ones are never the default.
rule default_targets:
    """Build `default_targets` of config.yaml and the report (the default)"""
    input:
        PLAN.built_for(PLAN.requested_artifacts([])),


include: "workflow/rules/common.smk"
include: "workflow/rules/handlers.smk"
include: "workflow/rules/targets.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/evaluation.smk"
include: "workflow/rules/benchmark.smk"
include: "workflow/rules/reporting.smk"

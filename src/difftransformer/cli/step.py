"""A job of the workflow: the arguments of `difftransformer step`, and what they define."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from difftransformer.config.project import LARGEST_SEED
from difftransformer.config.validation import validate
from difftransformer.errors import ConfigError
from difftransformer.provenance.fingerprint import job_fingerprint
from difftransformer.provenance.layout import Layout
from difftransformer.tracking.run_context import Job, JobIdentity, run_context

S = TypeVar("S", bound=BaseModel)


def state_ids(identity: JobIdentity) -> list[str]:
    """Return the names of the nested folders that contain the state of a job."""
    parts = (identity.rule, identity.run, identity.suite, identity.seed, identity.fingerprint[:16])
    return [str(part) for part in parts if part is not None]


class Files(BaseModel):
    """Input and output files of a job by name in its Snakemake rule; seed and results folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    inputs: dict[str, list[Path]] = {}
    outputs: dict[str, list[Path]]
    seed: int = Field(0, ge=0, le=LARGEST_SEED)
    results: Path = Path("results")


@dataclass(frozen=True)
class Step:
    """A job of the workflow, as given by the arguments of `difftransformer step`."""

    rule: str
    config: Path
    files: Files
    code: str
    threads: int
    log: Path | None

    @property
    def results(self) -> Path:
        """Folder of the results of all scales."""
        return self.files.results

    @property
    def seed(self) -> int:
        """Random seed of the initial weights and of the order of the data."""
        return self.files.seed

    def inputs(self, name: str) -> list[Path]:
        """Return the input files with ``name`` in the rule; empty if this job has none."""
        return self.files.inputs.get(name, [])

    def input(self, name: str) -> Path | None:
        """Return the first input file with ``name`` in the rule, or None if this job has none."""
        return next(iter(self.inputs(name)), None)

    def required(self, name: str) -> Path:
        """Return the first input file with ``name`` in the rule.

        Raises:
            ConfigError: This job has no such input file.
        """
        if (path := self.input(name)) is None:
            raise ConfigError(f"{self.rule}: --files: inputs.{name} is missing: name its file")
        return path

    def output(self, name: str = "result") -> Path:
        """Return the first output file with ``name`` in the rule.

        Raises:
            ConfigError: This job has no such output file.
        """
        if not (paths := self.files.outputs.get(name)):
            raise ConfigError(f"{self.rule}: --files: outputs.{name} is missing: name its file")
        return paths[0]

    def arguments(self) -> list[str]:
        """Return the command line that repeats this job, with all its files in ``--files``."""
        log = [] if self.log is None else ["--log", str(self.log)]
        return [
            *("step", self.rule, "--job-config", str(self.config), "--code", self.code),
            *("--threads", str(self.threads), "--files", self.files.model_dump_json(), *log),
        ]

    def read(self, kind: type[S]) -> S:
        """Return the settings in the file ``--job-config`` as an instance of ``kind``.

        Raises:
            ConfigError: The file is missing, or its content is not valid for ``kind``.
        """
        try:
            content = self.config.read_bytes()
        except OSError as error:
            reason = (error.strerror or "unreadable").lower()
            raise ConfigError(f"{self.config}: {reason}; run snakemake, which writes it") from None
        try:
            return validate(kind, content, f"{self.config}: not a {kind.__name__}")
        except ConfigError as error:
            raise ConfigError(f"{error}; run snakemake, which writes it") from None

    def identity(
        self, scale: str, run: str, settings: Any, inputs: str, **fields: Any
    ) -> JobIdentity:
        """Return the identity of this job, with its fingerprint.

        Args:
            scale: Name of the scale.
            run: Name of the run, dataset or artifact that the job makes.
            settings: All settings on which the result depends.
            inputs: Digest of the content of the input files.
            **fields: Further fields of `JobIdentity`.
        """
        fingerprint = job_fingerprint(self.rule, settings, self.code, inputs, fields.get("seed"))
        return JobIdentity(self.rule, scale, run, fingerprint, **fields)

    def state(self, identity: JobIdentity) -> Path:
        """Return the path of the folder with a job's state, named after the job's fingerprint."""
        return Path(Layout(str(self.results), identity.scale).state(*state_ids(identity)))

    @contextmanager
    def job(
        self, identity: JobIdentity, config: BaseModel, only: set[str] | None = None
    ) -> Iterator[Job]:
        """Context manager: run the block as a tracked job and yield the job's context.

        Args:
            identity: Identity of the job.
            config: Config of the job; its fields are logged as parameters.
            only: Fields to log; None: all of them.
        """
        state, params = self.state(identity), config.model_dump(mode="json", include=only)
        with run_context(
            identity, state=state, params=params, log=self.log, root=self.results
        ) as running:
            yield running

"""A job of the workflow, as `difftransformer step` is asked for it."""

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
    """Return the names of the folders down to a job's own state."""
    parts = (identity.rule, identity.run, identity.suite, identity.seed, identity.fingerprint[:16])
    return [str(part) for part in parts if part is not None]


class Files(BaseModel):
    """The files of a job, by the names that its rule gives them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    inputs: dict[str, list[Path]] = {}
    outputs: dict[str, list[Path]]
    seed: int = Field(0, ge=0, le=LARGEST_SEED)
    results: Path = Path("results")


@dataclass(frozen=True)
class Step:
    """A job of the workflow, as its rule asks for it."""

    rule: str
    config: Path
    files: Files
    code: str
    threads: int
    log: Path | None

    @property
    def results(self) -> Path:
        """Folder of everything that is built."""
        return self.files.results

    @property
    def seed(self) -> int:
        """Seed of the weights and of the order of the data."""
        return self.files.seed

    def inputs(self, name: str) -> list[Path]:
        """Return the input files of a name; none where the rule has none for this job."""
        return self.files.inputs.get(name, [])

    def input(self, name: str) -> Path | None:
        """Return the one input file of a name, if there is one."""
        return next(iter(self.inputs(name)), None)

    def required(self, name: str) -> Path:
        """Return the one input file of a name.

        Raises:
            ConfigError: There is none.
        """
        if (path := self.input(name)) is None:
            raise ConfigError(f"{self.rule}: --files: inputs.{name} is missing: name its file")
        return path

    def output(self, name: str = "result") -> Path:
        """Return the output file of a name.

        Raises:
            ConfigError: There is none.
        """
        if not (found := self.files.outputs.get(name)):
            raise ConfigError(f"{self.rule}: --files: outputs.{name} is missing: name its file")
        return found[0]

    def words(self) -> list[str]:
        """Return the command line of this job, with all that came by standard input."""
        log = [] if self.log is None else ["--log", str(self.log)]
        return [
            *("step", self.rule, "--config", str(self.config), "--code", self.code),
            *("--threads", str(self.threads), "--files", self.files.model_dump_json(), *log),
        ]

    def read(self, kind: type[S]) -> S:
        """Return the settings.

        Raises:
            ConfigError: The file is missing or holds something else.
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
        self, scale: str, run: str, settings: Any, inputs: str, **more: Any
    ) -> JobIdentity:
        """Return the identity of this job.

        Args:
            scale: Name of the scale.
            run: What it trains or makes.
            settings: All of its settings that count.
            inputs: Digest of what it reads.
            **more: What else a `JobIdentity` has.
        """
        fingerprint = job_fingerprint(self.rule, settings, self.code, inputs, more.get("seed"))
        return JobIdentity(self.rule, scale, run, fingerprint, **more)

    def state(self, identity: JobIdentity) -> Path:
        """Return the folder of the job's own state; its name has what the result depends on."""
        return Path(Layout(str(self.results), identity.scale).state(*state_ids(identity)))

    @contextmanager
    def job(
        self, identity: JobIdentity, config: BaseModel, only: set[str] | None = None
    ) -> Iterator[Job]:
        """Do the work of the block as a job that is tracked with all settings, or ``only`` some."""
        state, params = self.state(identity), config.model_dump(mode="json", include=only)
        with run_context(
            identity, state=state, params=params, log=self.log, root=self.results
        ) as running:
            yield running

"""Snakemake logger plugin: ``snakemake --logger difftransformer`` shows a live display.

The display shows the number of finished jobs, and step, loss, speed and ETA of each running
training. A finished job is reported in one line, a failed job with its log and error. On a terminal
the display refreshes in place; elsewhere it prints a line at intervals. The output of dry runs and
listings is unchanged.
"""

import contextlib
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from logging import WARNING, LogRecord
from pathlib import Path, PurePath
from tempfile import TemporaryFile
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase

from difftransformer.errors import UserError, nearest
from snakemake_logger_plugin_difftransformer.board import Board

_HIDDEN_MESSAGES = (
    *("Assuming unrestricted", "Building DAG", "Conda environments:", "Elapsed time"),
    *("Execute ", "Group jobs:", "Select jobs", "Singularity containers:", "Using shell"),
    # Messages per file of each job
    *("Storing in storage", "Finished upload", "Retrieving from storage", "Finished retrieval"),
    *("Removing local copy of storage", "Skipped removing non-empty directory"),
)
_USER_ERRORS = "|".join(kind.__name__ for kind in (UserError, *UserError.__subclasses__()))
_FAILED_COMMAND = re.compile(r"RuleException:\s+CalledProcessError in file ")
"""Snakemake's message with a failed job's command, which comes before the event of the job."""
_KILLED_BY = re.compile(r"died with <Signals\.(\w+): ")
_STOPPING = "Terminating processes on user request"
_ANY_FAILED = "At least one job did not complete successfully."
_CLEANUP_ADVICE = "Some jobs were triggered by provenance information"
"""Advice in a dry run to delete records; hidden, as stale results would then count as current."""
_UNKNOWN_TARGET = re.compile(r"No rule to produce (\S+) \(if you use input functions")
_INPUT_ERROR = re.compile(
    rf"InputFunctionException in [^\n]*\nError:\n +(?:{_USER_ERRORS}): ([^\n]*)"
)
"""Snakemake's message with a user's mistake, raised by an input function of the Snakefile."""
_SILENT = {LogEvent.RESOURCES_INFO, LogEvent.SHELLCMD, LogEvent.JOB_STARTED, LogEvent.DEBUG_DAG}
_SILENT |= {LogEvent.WORKFLOW_STARTED, LogEvent.RULEGRAPH, LogEvent.GROUP_INFO}


_targets: list[str] = []
_other_scales: dict[PurePath, str] = {}
_unavailable: dict[str, str] = {}


def set_targets(
    targets: Iterable[str], scales: Mapping[str, str], unavailable: Mapping[str, str] | None = None
) -> None:
    """Set the names that hints in messages about unknown targets use.

    Args:
        targets: Names of the targets of the workflow.
        scales: Results folder of each other scale -> name of the scale.
        unavailable: Artifact that this scale cannot build -> reason.
    """
    _targets[:] = targets
    _unavailable.clear()
    _unavailable.update(unavailable or {})
    _other_scales.clear()
    _other_scales.update({PurePath(folder): scale for folder, scale in scales.items()})


def _cure(target: str) -> str:
    """Return a hint for an unknown target: its scale, why it cannot be built, or a similar name."""
    for folder in PurePath(target).parents:
        if (scale := _other_scales.get(folder)) is not None:
            return f": that is of scale {scale}; give --config scale={scale}"
    if (reason := _unavailable.get(PurePath(target).stem)) is not None:
        return f" here: {reason}"
    return nearest(target, _targets)


def _require_cache() -> None:
    """Exit with a one-line error instead of Snakemake's traceback if its cache is not writable."""
    from snakemake.common import get_appdirs

    if "--shared-fs-usage" in sys.argv:  # a job on another machine
        return
    folder = Path(get_appdirs().user_cache_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    except OSError as error:
        reason = (error.strerror or "unwritable").lower()
        sys.exit(
            f"error: {folder}: Snakemake cannot write its cache there ({reason}); set "
            "XDG_CACHE_HOME to a folder that can be written"
        )


def _read_settings_strictly() -> None:
    """Replace Snakemake's readers of `--config` and `--configfile` by this package's YAML reader.

    Snakemake reads both options before the Snakefile. Its reader runs the expressions in a file
    with `__use_yte__`, and expands nested aliases without limit. The result of the first reading is
    not used, since the Snakefile reads both options again, but the reader must be as strict.
    """
    from snakemake import cli
    from snakemake.settings import types

    from difftransformer.config.project import parse_settings
    from difftransformer.config.yaml_files import read_yaml

    def with_one_line_errors(read: Callable[[Any], dict[str, Any]]) -> Callable[[Any], Any]:
        def reader(argument: Any) -> dict[str, Any]:
            try:
                return read(argument)
            except UserError as error:
                sys.exit(f"error: {error}")

        return reader

    cli.parse_config = with_one_line_errors(lambda words: parse_settings(words or ()))
    types.load_configfile = with_one_line_errors(lambda path: read_yaml(Path(path)))


@dataclass
class LogHandlerSettings(LogHandlerSettingsBase):
    """Settings of the plugin: options ``--logger-difftransformer-...`` of Snakemake."""

    interval: float = field(
        default=15.0, metadata={"help": "Seconds between lines when not on a terminal"}
    )


class LogHandler(LogHandlerBase):
    """Log handler of Snakemake that displays the running workflow as the module docstring says."""

    writes_to_stream = True
    writes_to_file = False
    has_filter = False
    has_formatter = False
    needs_rulegraph = False

    def __post_init__(self) -> None:
        """Initialize the handler from its settings; the display starts with the first job."""
        settings = self.settings
        assert isinstance(settings, LogHandlerSettings)
        self._stream = sys.stdout if self.common_settings.stdout else sys.stderr
        self._interval = settings.interval
        self._board = Board()
        self._signals: dict[int, str] = {}
        self._live: Any = None
        self._ticker: threading.Thread | None = None
        self._closing = threading.Event()
        _require_cache()
        _read_settings_strictly()

    def emit(self, record: LogRecord) -> None:
        """Update the display for one event or message of Snakemake."""
        try:
            if self.common_settings.dryrun or self.common_settings.verbose:
                text = self._text(record)
                self._print(None if text.startswith(_CLEANUP_ADVICE) else text)
            else:
                self._handle(getattr(record, "event", None), record)
        except BrokenPipeError:  # the reader has ended, such as `head`
            pass
        except Exception:  # logging handlers must not raise
            self.handleError(record)

    def close(self) -> None:
        """Stop the display and print the final summary."""
        self._closing.set()
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._ticker is not None:
            self._ticker.join(1)
            self._print(self._board.ending())
            self._ticker = None
        super().close()

    def _handle(self, event: LogEvent | None, record: Any) -> None:
        board = self._board
        if event == LogEvent.RUN_INFO:
            jobs = {rule: int(count) for rule, count in record.stats.items()}
            jobs.pop("total", None)
            board.plan(jobs)
            self._begin()
        elif event == LogEvent.JOB_INFO:
            board.start(
                record.jobid,
                record.rule_name,
                record.wildcards or {},
                list(record.log or ()),
                record.created,
            )
        elif event == LogEvent.JOB_FINISHED:
            self._print(board.finish(record.job_id))
        elif event == LogEvent.PROGRESS:
            board.done, board.total = record.done, record.total
        elif event == LogEvent.JOB_ERROR:
            message, killed_by = (
                getattr(record, "rule_msg", None),
                self._signals.pop(record.thread, None),
            )
            self._print(
                board.fail(record.jobid, record.rule_name, list(record.log), message, killed_by)
            )
        elif event == LogEvent.ERROR and _FAILED_COMMAND.match(text := self._text(record)):
            if match := _KILLED_BY.search(text):  # a killed job could not log it
                self._signals[record.thread] = match[1]
        elif event not in _SILENT:
            text = self._text(record)
            board.stopping |= text.startswith(_STOPPING)
            if _ANY_FAILED in text and board.stopped and not board.failed:
                return
            if record.levelno >= WARNING or not text.startswith(_HIDDEN_MESSAGES):
                self._print(text)

    def _text(self, record: LogRecord) -> str:
        """Return Snakemake's message; users' mistakes and unknown targets are cut to one line."""
        text = str(self.format(record))
        if (error := _INPUT_ERROR.match(text)) is not None:
            return f"error: {error[1]}"
        if (unknown := _UNKNOWN_TARGET.search(text)) is None:
            return text
        return f"error: there is no target '{unknown[1]}'{_cure(unknown[1])}"

    def _begin(self) -> None:
        if self._ticker is not None:
            return
        self._print(f"{self._board.total} jobs to do")
        if self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                get_renderable=lambda: "\n".join(self._board.lines()),
                console=Console(file=self._stream, highlight=False, markup=False),
                refresh_per_second=1,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._ticker = threading.Thread(target=self._tick, name="live line", daemon=True)
        self._ticker.start()

    def _tick(self) -> None:
        while not self._closing.wait(self._interval):
            if self._live is None and self._board.running:
                with contextlib.suppress(Exception):  # the next attempt may succeed
                    self._print(" | ".join(self._board.lines()))

    def _print(self, text: str | None) -> None:
        if not text or text == "None":
            return
        if self._live is not None:
            self._live.console.print(text, soft_wrap=True)
        else:
            print(text, file=self._stream, flush=True)

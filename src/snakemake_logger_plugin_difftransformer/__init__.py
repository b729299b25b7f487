"""Snakemake logger plugin: ``snakemake --logger difftransformer`` gives one live display.

Jobs done of total, and of each running training job its step, loss, speed and remaining time; a
finished job gets one line, a failed one its log and error. On a terminal the display refreshes in
place, elsewhere it is a plain line now and then. Dry runs and listings look as without it.
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

_CHATTER = (
    *("Assuming unrestricted", "Building DAG", "Conda environments:", "Elapsed time"),
    *("Execute ", "Group jobs:", "Select jobs", "Singularity containers:", "Using shell"),
    # Of each file of each job; while one is under way, its job runs.
    *("Storing in storage", "Finished upload", "Retrieving from storage", "Finished retrieval"),
    *("Removing local copy of storage", "Skipped removing non-empty directory"),
)
_OURS = "|".join(kind.__name__ for kind in (UserError, *UserError.__subclasses__()))
_OF_A_COMMAND = re.compile(r"RuleException:\s+CalledProcessError in file ")
"""What Snakemake says of a job that failed, with all of its command, before it says which job."""
_DIED = re.compile(r"died with <Signals\.(\w+): ")
_STOPPING = "Terminating processes on user request"
_ANY_FAILED = "At least one job did not complete successfully."
_ADVICE = "Some jobs were triggered by provenance information"
"""Of a dry run: to wipe records, after which stale results pass for new ones."""
_UNKNOWN = re.compile(r"No rule to produce (\S+) \(if you use input functions")
_REFUSED = re.compile(rf"InputFunctionException in [^\n]*\nError:\n +(?:{_OURS}): ([^\n]*)")
"""What a function of the Snakefile says that is asked for the files of a job."""
_SILENT = {LogEvent.RESOURCES_INFO, LogEvent.SHELLCMD, LogEvent.JOB_STARTED, LogEvent.DEBUG_DAG}
_SILENT |= {LogEvent.WORKFLOW_STARTED, LogEvent.RULEGRAPH, LogEvent.GROUP_INFO}


_targets: list[str] = []
_elsewhere: dict[PurePath, str] = {}
_lacking: dict[str, str] = {}


def know(
    targets: Iterable[str], scales: Mapping[str, str], lacking: Mapping[str, str] | None = None
) -> None:
    """Take what a wrong target may mean.

    Args:
        targets: Names of what the workflow can build.
        scales: Scale by folder, of the other scales.
        lacking: Why a table or figure cannot be built here, by its name.
    """
    _targets[:] = targets
    _lacking.clear()
    _lacking.update(lacking or {})
    _elsewhere.clear()
    _elsewhere.update({PurePath(folder): scale for folder, scale in scales.items()})


def _cure(target: str) -> str:
    """What is meant by a target that does not exist: one of another scale, or the nearest name."""
    for folder in PurePath(target).parents:
        if (scale := _elsewhere.get(folder)) is not None:
            return f": that is of scale {scale}; give --config scale={scale}"
    if (why := _lacking.get(PurePath(target).stem)) is not None:
        return f" here: {why}"
    return nearest(target, _targets)


def _require_cache() -> None:
    """End with one line where Snakemake cannot write its cache; it would show a traceback."""
    from snakemake.common import get_appdirs

    if "--shared-fs-usage" in sys.argv:  # a job on another machine, which may need no such cache
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
    """Replace Snakemake's readers of `--config` and `--configfile` by our strict YAML reader.

    Snakemake reads both before the Snakefile: it runs the expressions in a file with `__use_yte__`
    and expands nested aliases without limit. Its result is not used, since the Snakefile reads both
    again; the first reader must only be as strict.
    """
    from snakemake import cli
    from snakemake.settings import types

    from difftransformer.config.project import settings_given
    from difftransformer.config.yaml_files import read_yaml

    def with_one_line_errors(read: Callable[[Any], dict[str, Any]]) -> Callable[[Any], Any]:
        def reader(argument: Any) -> dict[str, Any]:
            try:
                return read(argument)
            except UserError as error:
                sys.exit(f"error: {error}")

        return reader

    cli.parse_config = with_one_line_errors(lambda words: settings_given(words or ()))
    types.load_configfile = with_one_line_errors(lambda path: read_yaml(Path(path)))


@dataclass
class LogHandlerSettings(LogHandlerSettingsBase):
    """Options ``--logger-difftransformer-...``."""

    interval: float = field(
        default=15.0, metadata={"help": "Seconds between lines when not on a terminal"}
    )


class LogHandler(LogHandlerBase):
    """Shows a workflow as it goes; see the module."""

    writes_to_stream = True
    writes_to_file = False
    has_filter = False
    has_formatter = False
    needs_rulegraph = False

    def __post_init__(self) -> None:
        """Keep what the settings say; nothing is drawn before a job runs."""
        settings = self.settings
        assert isinstance(settings, LogHandlerSettings)
        self._stream = sys.stdout if self.common_settings.stdout else sys.stderr
        self._interval = settings.interval
        self._board = Board()
        self._raised: dict[int, str] = {}
        self._live: Any = None
        self._ticker: threading.Thread | None = None
        self._closing = threading.Event()
        _require_cache()
        _read_settings_strictly()

    def emit(self, record: LogRecord) -> None:
        """Take one event or message."""
        try:
            if self.common_settings.dryrun or self.common_settings.verbose:
                text = self._text(record)
                self._say(None if text.startswith(_ADVICE) else text)
            else:
                self._take(getattr(record, "event", None), record)
        except BrokenPipeError:  # whoever read, as `head`, has seen enough
            pass
        except Exception:  # the contract of logging: a display never ends what it shows
            self.handleError(record)

    def close(self) -> None:
        """Say how it ended."""
        self._closing.set()
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._ticker is not None:
            self._ticker.join(1)
            self._say(self._board.ending())
            self._ticker = None
        super().close()

    def _take(self, event: LogEvent | None, record: Any) -> None:
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
            self._say(board.finish(record.job_id))
        elif event == LogEvent.PROGRESS:
            board.done, board.total = record.done, record.total
        elif event == LogEvent.JOB_ERROR:
            said, died = getattr(record, "rule_msg", None), self._raised.pop(record.thread, None)
            self._say(board.fail(record.jobid, record.rule_name, list(record.log), said, died))
        elif event == LogEvent.ERROR and _OF_A_COMMAND.match(text := self._text(record)):
            if died := _DIED.search(text):  # which the job itself could not say
                self._raised[record.thread] = died[1]
        elif event not in _SILENT:
            text = self._text(record)
            board.stopping |= text.startswith(_STOPPING)
            if _ANY_FAILED in text and board.stopped and not board.failed:
                return
            if record.levelno >= WARNING or not text.startswith(_CHATTER):
                self._say(text)

    def _text(self, record: LogRecord) -> str:
        """What Snakemake says; in one line of a target that does not exist, and what we refuse."""
        text = str(self.format(record))
        if (refused := _REFUSED.match(text)) is not None:
            return f"error: {refused[1]}"
        if (unknown := _UNKNOWN.search(text)) is None:
            return text
        return f"error: there is no target '{unknown[1]}'{_cure(unknown[1])}"

    def _begin(self) -> None:
        if self._ticker is not None:
            return
        self._say(f"{self._board.total} jobs to do")
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
                with contextlib.suppress(Exception):  # the next one may pass
                    self._say(" | ".join(self._board.lines()))

    def _say(self, text: str | None) -> None:
        if not text or text == "None":
            return
        if self._live is not None:
            self._live.console.print(text, soft_wrap=True)
        else:
            print(text, file=self._stream, flush=True)

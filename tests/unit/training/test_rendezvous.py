"""Two processes join a group; errors where one of them fails or is missing."""

import os
import socket
from collections.abc import Sequence

import pytest
from preloaded import Python

from difftransformer.training import rendezvous
from difftransformer.training.distributed import COLLECTIVE_TIMEOUT
from difftransformer.training.launch import RENDEZVOUS

START = """
import torch
from difftransformer.errors import UserError
from difftransformer.provenance.command_errors import report_errors
from difftransformer.training.rendezvous import init_process_group
with report_errors():
    {before}
    with init_process_group({world_size}, torch.device("cpu")) as group:
        {within}
        group.all_reduce_mean(torch.ones(1))
"""


def outcome(
    *within: str, world_size: int = 2, before: Sequence[str] = (), started: int = 2, port: int = 0
) -> tuple[list[int], str]:
    """What the processes end with and say, which do this each when they have joined."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(started), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port or free_port()), "DIFFTRANSFORMER_COLLECTIVE_TIMEOUT": "3",
    }  # fmt: skip
    processes = []
    for rank, code in enumerate(within):
        first = before[rank] if before else "pass"
        words = START.format(before=first, within=code, world_size=world_size)
        processes.append(Python("-c", words, env=environment | {"RANK": str(rank)}))
    results = [process.ended(timeout=60) for process in processes]
    output = "".join(result.stdout + result.stderr for result in results)
    return [result.returncode for result in results], output


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def error_line(output: str) -> str:
    assert "Traceback" not in output, output
    (line,) = [line for line in output.splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.parametrize("failing", [0, 1])
def test_failing_process_reports_and_the_other_stops(failing: int) -> None:
    acts = ["pass", "pass"]
    acts[failing] = 'raise UserError("the disk is full: make room")'
    status, output = outcome(*acts)
    assert error_line(output) == "error: the disk is full: make room"
    assert (status[failing], status[1 - failing]) == (2, os.EX_UNAVAILABLE), output
    assert f"stopped: process {failing} of 2 failed: the disk is full: make room" in output


@pytest.mark.slow
def test_memory_that_runs_out_in_one_is_the_line_of_all() -> None:
    status, output = outcome("pass", "torch.empty(2**60)")
    assert error_line(output).startswith("error: out of memory")
    assert status == [os.EX_UNAVAILABLE, 2]


@pytest.mark.slow
def test_what_is_refused_to_one_is_refused_to_all() -> None:
    write = "group.run_on_all_or_raise(lambda: open('/tmp', 'w') if group.is_rank0 else None)"
    status, output = outcome(write, write)
    assert "/tmp: Is a directory" in error_line(output)
    assert sorted(status) == [2, os.EX_UNAVAILABLE]


def test_the_others_wait_for_what_the_leader_does_alone_however_long() -> None:
    act = "import time; assert group.run_on_rank0(lambda: time.sleep(6) or 'done') == {}"
    status, output = outcome(act.format("'done'"), act.format("None"))
    assert status == [0, 0], output  # twice their patience


@pytest.mark.slow
def test_what_is_refused_to_the_leader_alone_is_refused_to_all() -> None:
    act = "group.run_on_rank0(lambda: open('/tmp', 'w'))"
    status, output = outcome(act, act)
    assert "/tmp: Is a directory" in error_line(output)
    assert sorted(status) == [2, os.EX_UNAVAILABLE]


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_no_traceback() -> None:
    status, output = outcome("pass", "import os; os.kill(os.getpid(), 9)")
    assert "process 0 of 2 has lost the others" in error_line(output)
    assert status == [2, -9]


def test_processes_of_different_torch_are_refused() -> None:
    other = "torch.__version__ = '2.12.0'"
    status, output = outcome("pass", "pass", before=["pass", other])
    assert "the processes differ: torch 2" in error_line(output)
    assert "install the same everywhere" in output and 0 not in status


@pytest.mark.parametrize(
    ("message", "is_lost"),
    [
        ("NCCL communicator was aborted on rank 1", True),
        ("[third_party/gloo/gloo/transport/tcp/buffer.cc:78] Application error", True),
        ("Connection closed by peer [127.0.0.1]:41532", True),
        ("Broken pipe", True),
        ("wait timeout after 3000ms, keys: Timed out", True),
        ("The client socket of TCPStore has failed", True),
        ("mat1 and mat2 shapes cannot be multiplied", False),
    ],
)
def test_which_errors_mean_that_another_process_is_lost(message: str, is_lost: bool) -> None:
    assert rendezvous._is_peer_failure(RuntimeError(message)) is is_lost


def test_a_process_that_is_missing() -> None:
    status, output = outcome("pass")
    assert "process 0 of 2 does not find the others" in error_line(output)
    assert status == [2]


def test_loss_of_a_process_gives_no_error_line_of_the_others() -> None:
    """Who started them has seen why, and says it: within training SIGTERM is heard and no end."""
    ignore_sigterm = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    status, output = outcome(
        "os._exit(9)",
        ignore_sigterm + "group.all_reduce_mean(torch.ones(1))",
        before=["import os"] * 2,
    )
    assert "error: " not in output
    assert status == [9, os.EX_UNAVAILABLE], output


@pytest.mark.slow
def test_missing_peer_is_reported() -> None:
    rank_1 = "import os; os.environ['RANK'] = '1'"
    status, output = outcome("pass", before=[rank_1])
    assert "process 1 of 2 does not find the others" in error_line(output)
    assert "MASTER_ADDR" in output and status == [2]


def test_a_node_that_never_comes() -> None:
    meeting = {
        RENDEZVOUS: f"2 127.0.0.1:{free_port()}",
        COLLECTIVE_TIMEOUT: "3",
        "OMP_NUM_THREADS": "1",
    }
    words = (
        "from difftransformer.provenance.command_errors import report_errors\n"
        "from difftransformer.training.launch import launch\n"
        "with report_errors():\n"
        "    launch(2, ['--help'], on_gpus=False)\n"
    )
    ended = Python("-c", words, env=os.environ | meeting).ended(timeout=60)
    assert ended.returncode == 2
    line = error_line(ended.stdout + ended.stderr)
    assert "does not find or has lost the other nodes of this training" in line


def test_wrong_number_of_processes_is_reported_once() -> None:
    status, output = outcome("pass", "pass", world_size=4)
    assert "training.world_size is 4, but 2 processes were started" in error_line(output)
    assert 0 not in status


def test_a_patience_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from difftransformer.errors import ConfigError
    from difftransformer.training.distributed import collective_timeout

    monkeypatch.setenv("DIFFTRANSFORMER_COLLECTIVE_TIMEOUT", "soon")
    with pytest.raises(
        ConfigError, match="DIFFTRANSFORMER_COLLECTIVE_TIMEOUT: 'soon' is no number"
    ):
        collective_timeout()

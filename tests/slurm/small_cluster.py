"""A Slurm of a node or more in a folder of its own: key, daemons, ports, state."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
CPUS, MEMORY_MB = 12, 64000
"""What the node says that it has, so that jobs of the committed profile fit on any machine."""
CARDS = ("/dev/null", "/dev/zero")
"""Devices that pass for GPUs: Slurm hands them out, and nothing of it opens them."""
QUICKLY = ("--seconds-between-status-checks", "2", "--slurm-init-seconds-before-status-checks", "2")
"""What the committed profile asks for more patiently than jobs of a second need."""

CONFIGURATION = """\
ClusterName=folder
SlurmctldHost={host}(127.0.0.1)
SlurmctldParameters=idle_on_node_suspend
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmctldPort={controller_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SchedulerParameters=sched_interval=5,bf_interval=5
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=10
KillWait=30
GresTypes=gpu
{nodes}
PartitionName=work Nodes=ALL Default=YES PriorityTier=1
PartitionName=urgent Nodes=ALL PriorityTier=10
"""

NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} "
    "RealMemory={memory} Gres=gpu:{cards}"
)


def missing() -> str | None:
    """Say in one line what is missing and how to get it."""
    lacking = [name for name in PROGRAMS if shutil.which(name, path=_search_path()) is None]
    if not lacking:
        return None
    return f"no {', '.join(lacking)}: apt-get install slurm-wlm munge (or your system's packages)"


def _search_path() -> str:
    return os.pathsep.join([*os.get_exec_path(), "/usr/sbin", "/sbin"])


class Cluster:
    """The running cluster; all its processes end with the block.

    Attributes:
        environment: What its clients (sbatch, squeue, ...) need to find it.
    """

    def __init__(self, folder: Path, nodes: int = 1) -> None:
        self.folder = folder
        self.nodes = [f"node{number}" for number in range(1, nodes + 1)]
        self.environment = os.environ | {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": os.pathsep.join([str(folder / "bin"), *os.get_exec_path()]),
        }
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for name in ("state", "bin", *(f"spool/{node}" for node in self.nodes)):
            (self.folder / name).mkdir(parents=True)
        # The plugin drops all that begins with SLURM_ from a job's environment, this address too,
        # and a configuration elsewhere than in /etc is not found then.
        for name in ("srun", "scontrol", "squeue"):
            real, wrapped = shutil.which(name), self.folder / "bin" / name
            wrapped.write_text(f'#!/bin/sh\nSLURM_CONF={self.folder}/slurm.conf exec {real} "$@"\n')
            wrapped.chmod(0o755)
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        controller_port, *ports = _free_ports(1 + len(self.nodes))
        host = socket.gethostname().split(".")[0]
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                host=host,
                user=_user(),
                folder=self.folder,
                controller_port=controller_port,
                nodes="\n".join(
                    NODE.format(
                        name=name,
                        host=host,
                        port=port,
                        cpus=CPUS,
                        memory=MEMORY_MB,
                        cards=len(CARDS),
                    )
                    for name, port in zip(self.nodes, ports, strict=True)
                ),
            )
        )
        gres = [f"Name=gpu File={card}\n" for card in CARDS]
        (self.folder / "gres.conf").write_text("".join(gres))
        self._stack.callback(self._stop)
        with self._stack:
            self._start(
                "munged", "--foreground", "--force", f"--key-file={key}",
                f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munged.pid",
                f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munge.seed",
            )  # fmt: skip
            wait_for((self.folder / "munge.socket").exists, "munged")
            self._start("slurmctld", "-D", "-f", self.environment["SLURM_CONF"])
            for node in self.nodes:
                self.start_node(node)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def ask(self, *words: str) -> str:
        """Call one of Slurm's commands; return what it says."""
        return subprocess.run(
            words, env=self.environment, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    def jobs(self, state: str, name: str = "") -> list[str]:
        """Return the ids of jobs in a state, those whose comment names a rule and its wildcards."""
        output = self.ask("squeue", "--noheader", "--states", state, "--format", "%i %k")
        return [line.split()[0] for line in output.splitlines() if name in line]

    def restarts(self, id: str) -> int:
        """Return how often Slurm has started a job again."""
        output = self.ask("scontrol", "show", "job", id)
        return int(output.split("Restarts=")[1].split()[0])

    def start_node(self, node: str = "node1") -> None:
        """Start a node's daemon and wait until the node takes jobs."""
        self._start("slurmd", "-D", "-N", node, "-f", self.environment["SLURM_CONF"], name=node)
        wait_for(lambda: self._node_is(node, "idle", "mixed", "allocated"), "the node")

    def lose_node(self, node: str = "node1", *, mark_down: bool = False) -> None:
        """Kill a node's daemon and all that runs on it; wait until the controller knows.

        It misses the node by itself, after a while, unless ``mark_down`` is set.
        """
        lost = self._daemons.pop(node)
        lost.kill()
        lost.wait()
        self._kill_steps(node)

        def missed() -> bool:
            if mark_down:  # again and again: what the daemon had sent before may undo it
                self.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")
            return self._node_is(node, "down")

        wait_for(missed, lambda: f"the controller to miss {node}: {self.ask('sinfo', '--Node')}")

    def _kill_steps(self, node: str = "") -> None:
        """Kill all that jobs run: steps outlive the daemon, and are known by their sockets."""
        for step in psutil.process_iter(["name"]):
            if step.info["name"] != "slurmstepd":
                continue
            with suppress(psutil.NoSuchProcess):
                sockets = [str(connection.laddr) for connection in step.net_connections("unix")]
                if any(path.startswith(f"{self.folder}/spool/{node}") for path in sockets):
                    for connection in [step, *step.children(recursive=True)]:
                        with suppress(psutil.NoSuchProcess):
                            connection.kill()

    def _node_is(self, node: str, *states: str) -> bool:
        sinfo = subprocess.run(
            ["sinfo", "--noheader", "--Node", "--nodes", node, "--format", "%T"],
            env=self.environment, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        return any(line.strip().rstrip("*") in states for line in sinfo.stdout.splitlines())

    def _start(self, program: str, *words: str, name: str = "") -> None:
        path = shutil.which(program, path=_search_path())
        assert path is not None
        with (self.folder / f"{name or program}.out").open("ab") as log:
            self._daemons[name or program] = subprocess.Popen(
                [path, *words], env=self.environment, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def _stop(self) -> None:
        with suppress(subprocess.SubprocessError):
            self.ask("scancel", "--user", _user())
            wait_for(lambda: not self.ask("squeue", "--noheader").strip(), "jobs to end", 40)
        self._kill_steps()
        for daemon in reversed(self._daemons.values()):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def wait_for(
    condition: Callable[[], object], what: str | Callable[[], str], seconds: float = 120
) -> None:
    """Wait until a condition holds; ``what`` says what for, or tells it when it has not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            description = what if isinstance(what, str) else what()
            raise AssertionError(f"waited {seconds:.0f} s for {description}")
        time.sleep(0.5)


def _user() -> str:
    return psutil.Process().username()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return [opened.getsockname()[1] for opened in sockets]

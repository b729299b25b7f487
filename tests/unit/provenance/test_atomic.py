import errno
import os
import re
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from difftransformer.provenance.atomic import replacing, write_bytes, write_text

HOST = re.sub(r"[^\w-]", "_", socket.gethostname())
NO_PROCESS = 2**22 + 1  # above what a kernel gives


@given(st.text())
def test_text_comes_back_as_written(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("atomic") / "deep" / "file.txt"
    write_text(path, text)
    assert path.read_bytes() == text.encode()
    assert [entry.name for entry in path.parent.iterdir()] == ["file.txt"]


def test_failed_write_keeps_the_old_file_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_bytes(path, b"old")
    with pytest.raises(RuntimeError, match="stop"), replacing(path) as aside:
        aside.write_bytes(b"half")
        assert aside.suffix == ".json"
        assert aside.parent == tmp_path
        raise RuntimeError("stop")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_refused_write_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space") as caught, replacing(tmp_path / "result.json"):
        raise OSError(errno.ENOSPC, "No space left on device")  # as a write says it, without a name
    assert caught.value.filename == str(tmp_path / "result.json")


def test_a_folder_that_refuses_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    target = tmp_path / "wanted.json"

    def refused(*_: object, **__: object) -> None:
        aside = target.with_name(f".wanted.{HOST}.{os.getpid()}.partial.json")
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(aside))

    with pytest.MonkeyPatch.context() as patch, pytest.raises(PermissionError) as error:
        patch.setattr(Path, "write_bytes", refused)
        write_text(target, "text")
    assert error.value.filename == str(target)


def test_forgetting_to_write_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "file"):
        pass


def test_new_files_have_the_usual_permissions(tmp_path: Path) -> None:
    write_text(tmp_path / "ours", "x")
    (tmp_path / "plain").write_text("x")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours", "plain")}
    assert len(modes) == 1


def test_kill_inside_a_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    write_text(path, "whole")
    code = (
        "import os, signal, sys\n"
        "from difftransformer.provenance.atomic import replacing\n"
        "with replacing(sys.argv[1]) as aside:\n"
        "    aside.write_text('torn')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(path)], env=os.environ, check=False)
    assert ended.returncode == -9
    assert path.read_text() == "whole"
    foreign = [
        tmp_path / f".{name}.partial"
        for name in (f"checkpoint.{HOST}.{os.getppid()}", f"other.{HOST}.{NO_PROCESS}")
    ]
    for leftover in foreign:  # of a process that lives, and of another file
        leftover.write_text("torn")
    assert len(list(tmp_path.iterdir())) == 4
    write_text(path, "new")
    assert sorted(tmp_path.iterdir()) == sorted([*foreign, path])


def test_what_another_host_is_writing_stays_on_a_shared_disk(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    written = tmp_path / f".checkpoint.another-node.{NO_PROCESS}.partial"
    left = tmp_path / f".checkpoint.lost-node.{NO_PROCESS}.partial"
    for half in (written, left):
        half.write_text("half")
    days_ago = time.time() - 2 * 86_400
    os.utime(left, (days_ago, days_ago))
    write_text(path, "whole")
    assert sorted(tmp_path.iterdir()) == sorted([written, path])


def test_a_file_in_the_making_names_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node7.cluster.example")
    with replacing(tmp_path / "model.bin") as aside:
        aside.write_text("half")
        monkeypatch.setattr("socket.gethostname", lambda: "node8.cluster.example")
        monkeypatch.setattr("psutil.pid_exists", lambda _: False)  # as seen from there
        write_text(tmp_path / "model.bin", "theirs")
        assert aside.read_text() == "half"
    assert (tmp_path / "model.bin").read_text() == "half"

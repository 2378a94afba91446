"""No limit of the job, no filter of its system calls and nobody who touches our files turns the
hooks into its death: it makes its calls as without them, unrecorded, and says why."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from oncall import native
from oncall.node.rings.ring_layout import HEADER

Calling = Callable[..., Any]  # conftest.py: starts a process that calls NCCL
Posting = Callable[..., Any]  # tests/conftest.py: starts a process that posts to a NIC
Recording = Callable[..., Any]  # tests/conftest.py: starts a process that writes a ring

_MIB = 1 << 20
_CALLS = ["init 0 4", "all_reduce 0 100", "send 0 7 1", "group_start", "group_end"]


@pytest.fixture(scope="session")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/hooks/filtered.c: a program that runs another under a filter of system calls."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: `make test` installs one")
    program = tmp_path_factory.mktemp("filtered") / "filtered"
    source = Path(__file__).parent / "filtered.c"
    subprocess.run([compiler, "-std=gnu11", source, "-o", program], check=True)
    return program


def _makes_its_calls(process: Any) -> None:
    assert process.calls(*_CALLS) == [0] * len(_CALLS)


def _leaves(process: Any) -> str:
    """It ends in order, by no signal; what it said on stderr."""
    said: str = process.leave()
    assert process.process.returncode == 0
    return said


def _is_unrecorded(process: Any, reason: str) -> None:
    """It makes its calls, says once why it is not recorded, and leaves word of it and no file."""
    _makes_its_calls(process)
    assert process.rings == []
    [note] = process.notes
    assert reason in note
    [line] = _leaves(process).splitlines()
    assert reason in line
    assert not [path for path in process.run_dir.glob("rings/*") if not path.is_symlink()]


def _set(limit: int, value: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(limit, (value, resource.getrlimit(limit)[1]))


# ------------------------------------------------------------------- limits


def test_a_limit_on_file_sizes(calling: Calling) -> None:
    """`ulimit -f 4096`: a write behind it raises SIGXFSZ, which ends a process."""
    process = calling(limit=_set(resource.RLIMIT_FSIZE, 4 * _MIB), ONCALL_DEBUG="1")
    _is_unrecorded(process, "ulimit -f")


def test_a_limit_on_file_sizes_that_comes_later(calling: Calling) -> None:
    process = calling()
    _makes_its_calls(process)
    resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    assert process.calls(*["all_reduce 0 5"] * 300) == [0] * 300
    assert process.rings
    _leaves(process)


def test_a_limit_on_memory(calling: Calling) -> None:
    process = calling(ONCALL_DEBUG="1")
    process.calls("version")
    pages = int(Path(f"/proc/{process.process.pid}/statm").read_text().split()[0])
    room = pages * resource.getpagesize() + _MIB
    resource.prlimit(process.process.pid, resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))
    _is_unrecorded(process, "Cannot allocate memory")


def test_a_limit_on_open_files(calling: Calling) -> None:
    """Word of it is left where no descriptor is to be had: three are open, the loader needs one."""
    process = calling(limit=_set(resource.RLIMIT_NOFILE, 4), ONCALL_DEBUG="1")
    _is_unrecorded(process, "Too many open files")


def test_no_file_fits_into_the_run_directory_of_a_full_disk_which_says_so(
    calling: Calling, tmp_path: Path
) -> None:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("only root may mount")
    (tmp_path / "run").mkdir()
    script = 'mount -t tmpfs -o size=1m none "$1" && shift && exec "$@"'
    under = ["unshare", "--mount", "sh", "-c", script, "sh", tmp_path / "run"]
    process = calling(under=under, ONCALL_DEBUG="1")
    _makes_its_calls(process)
    assert "No space left" in _leaves(process)


# ------------------------------------------------------------------- filters of system calls


@pytest.mark.parametrize("calls", ["fallocate", "socket", "mkdir", "fallocate,socket,mkdir"])
def test_a_filter_that_kills(calling: Calling, filtered: Path, tmp_path: Path, calls: str) -> None:
    """What is not common to all programs is not called, where there is a folder for rings."""
    (tmp_path / "run" / "rings").mkdir(parents=True)
    process = calling(under=[filtered, "kill", calls], ONCALL_RING_GROUP="daemon")
    _makes_its_calls(process)
    assert len(process.rings) == 1
    _leaves(process)


@pytest.mark.parametrize(
    ("action", "reason"),
    [("EPERM", "Operation not permitted"), ("ENOSYS", "Function not implemented")],
)
@pytest.mark.parametrize("call", ["rename", "statfs"])
def test_a_filter_that_refuses(
    calling: Calling, filtered: Path, action: str, reason: str, call: str
) -> None:
    environment = {"ONCALL_DEBUG": "1", "ONCALL_RUN_DIR_ON_DISK": "0"}
    if call == "rename":
        environment["ONCALL_RUN_DIR_ON_DISK"] = "1"
    _is_unrecorded(calling(under=[filtered, action, call], **environment), reason)


def test_a_filter_that_refuses_folders(calling: Calling, filtered: Path) -> None:
    process = calling(under=[filtered, "EPERM", "mkdir"], ONCALL_DEBUG="1")
    _makes_its_calls(process)
    assert process.rings == []
    assert "Operation not permitted" in _leaves(process)


# ------------------------------------------------------------------- the file under its process


@pytest.mark.parametrize("bytes_left", [0, 4096, 600_000])
def test_a_ring_that_is_cut_short(calling: Calling, bytes_left: int) -> None:
    """A store behind its end raises SIGBUS."""
    process = calling()
    _makes_its_calls(process)
    os.truncate(process.rings[0], bytes_left)
    assert process.calls(*["all_reduce 0 5"] * 300) == [0] * 300
    _makes_its_calls(process)
    assert process.calls("destroy 0") == [0]
    _leaves(process)


def test_a_verbs_file_that_is_cut_short(posting: Posting) -> None:
    process = posting("linked", LD_PRELOAD=str(native.verbs_library()))
    assert process.tell("pair 7 8 64", "post 7 3 100", "poll") == [0, 0, 1]
    os.truncate(process.file, 0)
    assert process.tell("post 7 3 100", "poll", "pair 9 8 64", "destroy 7") == [0, 1, 0, 0]
    assert process.leave() == ""
    assert process.process.returncode == 0


def test_a_header_that_somebody_overwrote(recording: Recording) -> None:
    """Whoever may move `tail` may write the rest: no number in it is trusted as a size."""
    process = recording()
    assert process.tell("communicator 4") == "ok"
    with process.ring.open("r+b") as ring:
        for field in ("communicator_slots", "transfer_slots", "record_slots"):
            ring.seek(HEADER.fields[field][1])
            ring.write(b"\0\0\0\0" if field != "communicator_slots" else b"\xff\xff\xff\x7f")
    for command in ["transfer 3", "communicator 8", "write 50", *["communicator 2"] * 1100]:
        assert process.tell(command) == "ok"
    process.leave()
    assert process.process.returncode == 0


# ------------------------------------------------------------------- descriptors and stderr


def test_a_closed_standard_stream_is_not_taken(calling: Calling) -> None:
    """A job that began with stderr closed does not find our file there."""
    process = calling(limit=lambda: os.close(2))
    _makes_its_calls(process)
    folder = Path(f"/proc/{process.process.pid}/fd")
    ours = [int(fd.name) for fd in folder.iterdir() if fd.readlink().suffix == ".ring"]
    assert len(ours) == 1
    assert ours[0] >= 100
    _leaves(process)


def test_a_stderr_that_nobody_reads_any_more(calling: Calling) -> None:
    """A write there raises SIGPIPE, which ends a process."""
    read, write = os.pipe()
    os.close(read)
    process = calling(stderr=write, ONCALL_DEBUG="1", ONCALL_RUN_DIR="/proc/nothing")
    os.close(write)
    _makes_its_calls(process)
    _leaves(process)


def test_a_stderr_that_is_full(calling: Calling) -> None:
    """A write there would wait for its reader."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    while True:
        try:
            os.write(write, b"x" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(write, True)
    process = calling(stderr=write, ONCALL_DEBUG="1", ONCALL_RUN_DIR="/proc/nothing")
    os.close(write)
    _makes_its_calls(process)
    _leaves(process)
    os.close(read)


def test_what_nccl_lacks_is_said_to_no_broken_pipe(calling: Calling) -> None:
    read, write = os.pipe()
    os.close(read)
    process = calling("older", stderr=write)
    os.close(write)
    process.calls("init 0 4")
    assert process.calls("all_to_all 0 5") == [5]  # ncclInvalidUsage
    _leaves(process)


# ------------------------------------------------------------------- where it may write


def test_a_run_directory_on_a_disk(calling: Calling, tmp_path: Path) -> None:
    """A store into a mapped file can wait for the disk."""
    kind = subprocess.run(
        ["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True
    ).stdout.strip()
    if kind in {"tmpfs", "ramfs"}:
        pytest.skip(f"{tmp_path} is in memory")
    process = calling(ONCALL_DEBUG="1", ONCALL_RUN_DIR_ON_DISK="")
    _is_unrecorded(process, "the run directory is on a disk")


def test_a_run_directory_in_memory(calling: Calling) -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm")
    run_dir = Path(f"/dev/shm/oncall-test-{os.getpid()}")
    try:
        process = calling(ONCALL_RUN_DIR=str(run_dir), ONCALL_RUN_DIR_ON_DISK="")
        _makes_its_calls(process)
        assert [path.suffix for path in (run_dir / "rings").iterdir()] == [".ring"]
        _leaves(process)
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)


def test_a_link_in_place_of_the_folder_of_rings(calling: Calling, tmp_path: Path) -> None:
    """In a run directory that all may write, anybody could have put it there."""
    elsewhere, run_dir = tmp_path / "elsewhere", tmp_path / "run"
    elsewhere.mkdir()
    run_dir.mkdir()
    (run_dir / "rings").symlink_to(elsewhere)
    process = calling(ONCALL_DEBUG="1")
    _makes_its_calls(process)
    [line] = _leaves(process).splitlines()
    assert "rings" in line
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    ("run_dir", "reason"),
    [("/" + "x" * 10_000, "too long"), ("/x" * 2000, "too long"), ("run", "not an absolute path")],
)
def test_a_hostile_run_directory(
    calling: Calling, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_dir: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    process = calling(ONCALL_DEBUG="1", ONCALL_RUN_DIR=run_dir)
    _makes_its_calls(process)
    [line] = _leaves(process).splitlines()
    assert reason in line
    assert list(tmp_path.glob("run*")) == []


@pytest.mark.parametrize("records", ["-1", "99999999999999999999", "0", "many", "64"])
def test_a_hostile_number(calling: Calling, records: str) -> None:
    hostile = {"RANK": "-5", "WORLD_SIZE": "1e9", "ONCALL_NODE": "n" * 9999}
    process = calling(ONCALL_RING_RECORDS=records, **hostile)
    _makes_its_calls(process)
    assert len(process.rings) == 1
    _leaves(process)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a program that gains rights")
def test_a_program_with_rights_that_its_user_has_not(ring_writer: Path) -> None:
    """Its environment is the user's, who must not have files made as another."""
    with TemporaryDirectory() as name:  # the user must get at it, as not at pytest's own folders
        folder = Path(name)
        folder.chmod(0o777)
        program = folder / "gains"
        shutil.copy(ring_writer, program)
        program.chmod(0o4755)
        done = subprocess.run(
            [program],
            input="write 3\n",
            capture_output=True,
            text=True,
            user=65534,
            env={**os.environ, "ONCALL_RUN_DIR": str(folder / "run")},
            check=True,
        )
        assert done.stdout == "silent\nok\n"
        assert list(folder.iterdir()) == [program]


def test_a_job_without_limits_is_recorded_and_leaves_no_note(calling: Calling) -> None:
    process = calling(ONCALL_DEBUG="1")
    _makes_its_calls(process)
    assert len(process.rings) == 1
    assert process.notes == []
    assert _leaves(process) == ""
    assert process.process.returncode != -signal.SIGBUS

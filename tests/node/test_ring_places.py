"""A full disk, a read-only one, a PID namespace: in mount and PID namespaces of the test's own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncall.node.rings.ring import RingReader


def _may_unshare() -> bool:
    unshare = shutil.which("unshare")
    return (
        bool(unshare)
        and not subprocess.run(
            [str(unshare), "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "none", "/mnt"],
            capture_output=True,
            check=False,
        ).returncode
    )


pytestmark = pytest.mark.skipif(not _may_unshare(), reason="only root may make namespaces here")


@pytest.mark.parametrize(
    ("options", "reason"),
    [("size=1m", "No space left on device"), ("ro", "Read-only file system")],
)
def test_a_place_that_takes_nothing(
    ring_writer: Path, tmp_path: Path, options: str, reason: str
) -> None:
    """The job runs on, nothing is left behind, and the disk is as empty as before."""
    script = f'mount -t tmpfs -o {options} none "$1" && "$2" && find "$1" -name "*ring*" -type f'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", tmp_path, ring_writer],
        input="write 3\n",
        capture_output=True,
        text=True,
        env={**os.environ, "ONCALL_RUN_DIR": str(tmp_path), "ONCALL_DEBUG": "1"},
        check=True,
    )
    assert done.stdout == "silent\nok\n"
    [line] = done.stderr.splitlines()
    assert line.endswith(reason)


@pytest.fixture
def contained(ring_writer: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that records as number 1 of its own PID namespace, as in a container."""
    with subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", ring_writer],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "ONCALL_RUN_DIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "recording\n"
        yield process
        process.kill()


def test_a_process_in_a_container_is_seen_to_live_and_die(
    contained: subprocess.Popen[str], tmp_path: Path
) -> None:
    [path] = (tmp_path / "rings").iterdir()
    with RingReader.open(path) as ring:
        assert ring.header.pid == 1
        assert ring.alive
        here = ring.pid_here
        assert here is not None
        assert here > 1
        os.kill(here, signal.SIGKILL)
        contained.wait(timeout=60)
        assert not ring.alive

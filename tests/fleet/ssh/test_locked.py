"""A restricted key with a forced command: it reads evidence and does nothing else."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from loopback import Loopback

_MOST_S = 30


def _ssh(loopback: Loopback, *words: str, send: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    argv = ["ssh", "-F", str(loopback.config), "-oBatchMode=yes", *words]
    return subprocess.run(argv, input=send, capture_output=True, timeout=_MOST_S, check=False)


def test_it_answers_what_it_is_for(loopback: Loopback) -> None:
    hello = b'{"ask":"hello"}\n'
    for command in (
        "oncall node serve",
        "oncall node query",
        f"oncall node query '{hello.decode().strip()}'",
    ):
        said = _ssh(loopback, "locked", command, send=hello)
        assert json.loads(said.stdout)["end"]["node"] == "locked", said.stderr


@pytest.mark.parametrize(
    "command",
    [
        "id",
        "oncall node serve; id",
        "oncall collect",
        "oncall node serve --data-dir /etc",
        "oncall node query --data-dir=/etc",
        "/tmp/evil/oncall node serve --run-dir /tmp",
        "scp -f /etc/passwd",
    ],
)
def test_every_other_command_is_refused(loopback: Loopback, command: str) -> None:
    said = _ssh(loopback, "locked", command, send=b'{"ask":"hello"}\n')
    assert b"uid=" not in said.stdout
    assert b"root:" not in said.stdout
    assert json.loads(said.stdout)["reason"] == "request"


def test_no_shell(loopback: Loopback) -> None:
    said = _ssh(loopback, "locked", send=b"id\n")
    assert b"uid=" not in said.stdout
    assert json.loads(said.stdout)["reason"] == "request"


def test_no_terminal(loopback: Loopback) -> None:
    said = _ssh(loopback, "-tt", "locked", "oncall node query", send=b"\x04")
    assert b"PTY allocation request failed" in said.stderr


def test_no_file_transfer(loopback: Loopback, tmp_path: Path) -> None:
    if shutil.which("sftp") is None:
        pytest.skip("there is no sftp here")
    said = subprocess.run(
        ["sftp", "-F", str(loopback.config), "-b", "-", "locked"],
        input=f"get /etc/passwd {tmp_path}/got\n".encode(),
        capture_output=True,
        timeout=_MOST_S,
        check=False,
    )
    assert said.returncode != 0
    assert not (tmp_path / "got").exists()


def test_no_forwarding(loopback: Loopback) -> None:
    with socket.create_server(("127.0.0.1", 0)) as target:
        port = target.getsockname()[1]
        said = _ssh(loopback, "-W", f"127.0.0.1:{port}", "locked")
        assert said.returncode != 0
        assert b"prohibited" in said.stderr
        target.setblocking(False)
        with pytest.raises(BlockingIOError):
            target.accept()


def test_no_port_of_its_own(loopback: Loopback) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    said = _ssh(loopback, "-oExitOnForwardFailure=yes", "-R", f"{port}:127.0.0.1:1", "locked", "x")
    assert said.returncode == 255
    assert b"forwarding failed" in said.stderr


def test_a_request_cannot_leave_its_folders(loopback: Loopback) -> None:
    tables = ("../../etc/passwd", "ops; COPY (SELECT 1) TO 'x'", "read_text('/etc/passwd')")
    job = "a'; DROP TABLE ops; --"
    requests = [
        json.dumps({"ask": "detail", "job": job, "tables": [table], "comms": [1]})
        for table in tables
    ]
    said = _ssh(loopback, "locked", "oncall node serve", send="\n".join(requests).encode() + b"\n")
    answers = [json.loads(line) for line in said.stdout.splitlines()]
    assert [answer["reason"] for answer in answers] == ["request"] * len(tables)

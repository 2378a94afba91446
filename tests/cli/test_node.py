"""`oncall node` as SSH runs it: light, and with a restricted key nothing but evidence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..command import oncall

COMMAND = (sys.executable, "-m", "oncall.cli.node")


def run(*arguments: str, stdin: bytes = b"", **environment: str) -> tuple[int, list[Any]]:
    """The exit code and the frames, of answers without parts."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        env={**os.environ, **environment},
        timeout=60,
    )
    assert done.stderr == b""
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> tuple[str, ...]:
    return ("--data-dir", str(tmp_path), "--run-dir", str(tmp_path), "--node", "gpu017")


def test_many_requests_each_have_an_answer_and_a_wrong_one_ends_nothing(
    place: tuple[str, ...],
) -> None:
    asked = b'{"ask": "hello"}\nls -l\n{"ask": "clock"}\n'
    code, (hello, wrong, clock) = run("serve", *place, stdin=asked)
    assert code == 0
    assert hello["end"]["node"] == "gpu017"
    assert hello["end"]["protocol"] == [1, 1]
    assert hello["end"]["collector"] == {"alive": False, "problem": "no collector is running"}
    assert wrong["reason"] == "request"
    assert clock["end"]["received_ns"] <= clock["end"]["answered_ns"]


def test_a_newer_console_is_reported_who_must_be_upgraded(place: tuple[str, ...]) -> None:
    _, (output,) = run("query", '{"ask": "hello", "protocol": 9, "oldest_protocol": 9}', *place)
    assert output["reason"] == "version"
    assert "upgrade oncall on the node" in output["error"]


@pytest.mark.parametrize(
    "asked",
    [
        "rm -rf /",
        "",
        "oncall",
        "oncall collect",
        "oncall node serve --data-dir /etc",
        "oncall node query --data-dir=/etc extra",
        "oncall node serve; id",
        "oncall node query '{}' && id",
        "sh -c 'oncall node serve'",
        "oncall node 'unclosed",
        "scp -f /etc/shadow",
    ],
)
def test_a_restricted_key_can_do_nothing_else(asked: str, place: tuple[str, ...]) -> None:
    done = oncall("node", "query", *place, SSH_ORIGINAL_COMMAND=asked)
    output = json.loads(done.stdout)
    assert (done.returncode, output["reason"]) == (2, "request")
    assert "may run `oncall node serve` or `oncall node query` only" in output["error"]


def test_a_restricted_key_can_ask_for_evidence(place: tuple[str, ...]) -> None:
    asked = """/usr/bin/oncall node query '{"ask": "clock"}'"""
    code, (output,) = run("serve", *place, SSH_ORIGINAL_COMMAND=asked)
    assert (code, output["end"]["node"]) == (0, "gpu017")


def test_a_node_does_not_load_what_only_a_console_needs() -> None:
    script = (
        "import sys, oncall.cli.node, oncall.fleet.endpoint.serve;"
        "print([m for m in ('typer', 'rich', 'asyncssh', 'ClusterShell') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b"[]\n"


def test_a_gateway_starts_without_what_it_seldom_needs() -> None:
    script = (
        "import sys, oncall.cli.node, oncall.fleet.reach, oncall.fleet.tree.gateway;"
        "print([m for m in ('numpy', 'typer', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b"[]\n"

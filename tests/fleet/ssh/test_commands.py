"""`oncall diagnose` and `oncall doctor` as people type them, over a real sshd."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from loopback import Loopback, why_not
from processes import left_with, running_with

from oncall.fleet.configuration import TransportName

_SCENARIO = """
job: stopped
tp: 4
pp: 2
dp: 3
recorder: hooks
faults:
  - {fault: H1, rank: 13, at: 1 min}
"""
_WHEN = ("--at", "2026-01-01T00:11", "--since", "12m")
_MOST_S = 120


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """gpu001 to gpu003 with the shards of a job of 24 ranks, one of which has stopped."""
    if reason := why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("job")
    (folder / "stopped.yaml").write_text(_SCENARIO)
    _oncall("simulate", f"{folder}/stopped.yaml", "-o", f"{folder}/shards", "--shards", check=True)
    with Loopback(tmp_path_factory.mktemp("nodes")) as running:
        for name in ("gpu001", "gpu002", "gpu003"):
            shutil.copytree(folder / "shards" / name, running.nodes[name].data, dirs_exist_ok=True)
        yield running


def _oncall(
    *words: str, check: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "oncall.cli.main", *words],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_MOST_S,
        check=check,
    )


def _configured(loopback: Loopback, folder: Path, transport: TransportName) -> dict[str, str]:
    """The environment in which a user's configuration leads to the fleet."""
    path = folder / "oncall" / "config.toml"
    path.parent.mkdir()
    path.write_text(
        f'[fleet]\nssh_options = ["-F", "{loopback.config}"]\ntransport = "{transport}"\n'
        'connect_timeout = "4s"\nhosts = "gpu[001-003]"\n'
    )
    return {"XDG_CONFIG_HOME": str(folder)}


def _diagnosis(said: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert said.returncode == 1, said.stderr
    message: dict[str, Any] = json.loads(said.stdout)
    return message


def test_three_nodes_tell_who_stopped(
    nodes: Loopback, tmp_path: Path, transport_name: TransportName
) -> None:
    environment = _configured(nodes, tmp_path, transport_name)
    output = _diagnosis(
        _oncall("diagnose", "--job", "stopped", *_WHEN, "--format", "json", **environment)
    )
    assert output["coverage"]["answered"] == 3
    first = output["findings"][0]
    assert (first["verdict"], [one["rank"] for one in first["blame"]]) == ("H1", [13])
    assert left_with(str(nodes.config)) == []


def test_nodes_that_do_not_answer_are_gaps_with_reasons(nodes: Loopback, tmp_path: Path) -> None:
    environment = _configured(nodes, tmp_path, "auto")
    hosts = "gpu[001-003],dead,impostor,old,bare"
    output = _diagnosis(
        _oncall(
            "diagnose", "--job", "stopped", "--hosts", hosts, *_WHEN, "--format", "json",
            **environment,
        )
    )  # fmt: skip
    gaps = {node: gap["reason"] for gap in output["coverage"]["gaps"] for node in gap["nodes"]}
    reasons = {gaps[host] for host in ("dead", "impostor", "old", "bare")}
    assert len(reasons) == 4
    assert output["findings"][0]["verdict"] == "H1"


def test_interrupt_leaves_no_ssh_behind(nodes: Loopback, tmp_path: Path) -> None:
    environment = {**os.environ, **_configured(nodes, tmp_path, "openssh")}
    process = subprocess.Popen(
        [sys.executable, "-m", "oncall.cli.main", "doctor", "gpu[001-003],hanging"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    until = time.monotonic() + _MOST_S
    while not running_with(f"-F{nodes.config}") and not running_with(str(nodes.config)):
        assert time.monotonic() < until, "no ssh was ever started"
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=_MOST_S)
    assert process.returncode == 130, said
    assert b"Traceback" not in said
    assert left_with(str(nodes.config)) == []


def test_doctor_folds_what_is_equal_and_says_what_to_type(
    nodes: Loopback, tmp_path: Path, transport_name: TransportName
) -> None:
    environment = _configured(nodes, tmp_path, transport_name)
    said = _oncall("doctor", "gpu[001-003],inner,dead,impostor,old,bare,stranger", **environment)
    assert said.returncode == 1, said.stderr
    assert "▲ gpu[001-003],inner (4)" in said.stdout
    assert "no collector is running" in said.stdout
    assert "ssh-keygen -R impostor" in said.stdout
    assert "0 of 9 nodes are healthy" in said.stdout
    assert max(map(len, said.stdout.splitlines())) <= 80


@contextmanager
def _collecting(nodes: Loopback, *names: str) -> Iterator[None]:
    """Collectors on these nodes."""
    collectors = [
        subprocess.Popen(
            [sys.executable, "-m", "oncall.cli.main", "collect"],
            env={
                **os.environ,
                "ONCALL_NODE": name,
                "ONCALL_DATA_DIR": str(nodes.nodes[name].data),
                "ONCALL_RUN_DIR": str(nodes.nodes[name].run),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name in names
    ]
    try:
        until = time.monotonic() + _MOST_S
        while not all((nodes.nodes[name].run / "collector.sock").exists() for name in names):
            assert time.monotonic() < until and not any(one.poll() for one in collectors)
            time.sleep(0.05)
        yield
    finally:
        for one in collectors:
            one.terminate()
        for one in collectors:
            one.wait(_MOST_S)


def test_doctor_is_content_with_a_node_that_collects(nodes: Loopback, tmp_path: Path) -> None:
    environment = _configured(nodes, tmp_path, "auto")
    with _collecting(nodes, "inner"):
        said = _oncall("doctor", "inner", "--format", "json", **environment)
    assert said.returncode == 0, said.stdout
    (host,) = json.loads(said.stdout)["hosts"]
    assert (host["node"], host["transport"]) == ("inner", "in-process")
    assert host["collector"]["alive"]
    assert "through bastion" in host["why"]


def test_the_guide_shows_what_doctor_prints(nodes: Loopback, tmp_path: Path) -> None:
    """But for numbers, and where lines are folded because of them."""
    guide = Path(__file__).parents[3] / "docs" / "guide" / "fleet.md"
    command, _, shown = guide.read_text().partition("    $ oncall ")[2].partition("\n")
    shown = re.split(r"\n(?=\S)", shown, maxsplit=1)[0]
    environment = _configured(nodes, tmp_path, "auto")
    with _collecting(nodes, "gpu001", "gpu002", "gpu003", "inner"):
        said = _oncall(*shlex.split(command), **environment)
    assert _without_numbers(said.stdout) == _without_numbers(shown)


def _without_numbers(text: str) -> list[str]:
    one_line = " ".join(text.split())
    return re.sub(r"([\d.]+( (d|h|min|[nµm]?s|[KMGT]iB)\b)? ?)+", "0 ", one_line).split()


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("doctor", "--", "-oProxyCommand=touch made"), "option"),
        (("doctor", "gpu[1-"), "bracket"),
        (("doctor", "gpu001", "--inventory", "x"), "not both"),
        (("doctor", "--inventory", "no-such-file"), "No such file"),
    ],
)
def test_usage(words: tuple[str, ...], reported: str) -> None:
    said = _oncall(*words)
    assert said.returncode == 2
    assert reported in said.stderr
    assert "Traceback" not in said.stderr

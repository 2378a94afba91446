"""A live session on nodes behind a real sshd: opened, cut off, flooded, left."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncall.console.evidence_queries import GetRankCard, GetRates
from oncall.console.live import Fleet
from oncall.console.queries import (
    GatherSnapshot,
    GetSnapshot,
    GetWordsByHand,
    ListJobs,
    ListTroubles,
    OpenJob,
)
from oncall.console.replay import Replay
from oncall.console.rulebook_store import RulebookStore
from oncall.core.errors import UsageError
from oncall.fleet.reach import reach_fleet

sys.path.insert(0, str(Path(__file__).parents[1] / "fleet" / "ssh"))

from loopback import Loopback, why_not

from .conftest import CULPRIT
from .test_live import children, nodes, refreshed_until

Opened = Callable[..., Replay]

# Greets as a node of the job, and answers everything else without end.
_FLOOD = """\
import json, sys, time
status = {"node": "flood", "protocol": [1, 1], "oncall_version": "0", "received_ns": time.time_ns(),
          "answered_ns": time.time_ns(), "jobs": {"simulated": {"last_ns": 1, "ranks": [16]}}}
for line in sys.stdin:
    if json.loads(line)["ask"] in ("hello", "clock"):
        print(json.dumps({"end": status}), flush=True)
    else:
        part = json.dumps({"part": "ops", "rows": 1, "bytes": 1 << 23}).encode() + b"\\n"
        while True:
            sys.stdout.buffer.write(part + bytes(1 << 23))
"""


@pytest.fixture(scope="module")
def loopback(tmp_path_factory: pytest.TempPathFactory, shards: Path) -> Iterator[Loopback]:
    """gpu001 and gpu002 with the shards of a hang, and one that floods."""
    if reason := why_not():
        pytest.skip(reason)
    with Loopback(tmp_path_factory.mktemp("ssh"), more_nodes=["flood"]) as running:
        for name, folder in nodes(shards).items():
            shutil.copytree(folder, running.nodes[name].data, dirs_exist_ok=True)
        program = running.folder / "flood.py"
        program.write_text(_FLOOD)
        quick = running.folder / "programs" / "quick" / "oncall"
        quick.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} {program}\n")
        yield running


@pytest.fixture
def opened(
    loopback: Loopback, store: RulebookStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Opened]:
    """Opens sessions on hosts, by the user's configuration; they end with the test."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sessions: list[Replay] = []

    def open_(hosts: str, transport: str = "in-process") -> Replay:
        settings = tmp_path / "config" / "oncall" / "config.toml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        ssh = json.dumps(["-F", str(loopback.config)])
        settings.write_text(f'[fleet]\nssh_options = {ssh}\ntransport = "{transport}"\n')
        sessions.append(Replay(Fleet(reach_fleet(hosts, None), store, since_ns=None), store))
        return sessions[-1]

    yield open_
    for session in sessions:
        session.close()


def ssh_children() -> list[int]:
    """The pids of the logins that this process has started; the servers are its children, too."""
    return sorted(int(stat.split()[0]) for stat in children() if "(ssh)" in stat)


def test_a_snapshot_comes_over_ssh_a_cut_connection_is_reported_and_comes_back(
    opened: Opened,
) -> None:
    session = opened("gpu[001-002]", "openssh")
    [line] = session.ask(ListJobs())
    assert (line.job, line.nodes, line.ranks) == ("simulated", 2, 16)
    logins = ssh_children()
    assert len(logins) == 2
    first = session.ask(OpenJob("simulated"))
    assert ssh_children() == logins  # the same connections
    [finding, *_] = first.diagnosis.findings
    assert (finding.verdict, finding.blame[0].where["rank"]) == ("H1", CULPRIT)

    for pid in logins:
        os.kill(pid, signal.SIGKILL)
    snapshot = session.ask(GatherSnapshot())
    assert {one.kind for one in snapshot.hosts} == {"error"}
    assert snapshot.diagnosis.findings == first.diagnosis.findings
    assert session.ask(GetRankCard(CULPRIT)).operations.total
    refreshed_until(session, {"ok"})

    session.close()
    assert ssh_children() == []


def test_a_command_runs_on_a_node_by_hand(opened: Opened) -> None:
    session = opened("gpu[001-002]", "openssh")
    session.ask(ListJobs())
    words = session.ask(GetWordsByHand("gpu002", "echo it is $((6 * 7))"))
    assert words[:2] == ("ssh", "-t")
    done = subprocess.run(words, input="", capture_output=True, text=True, check=True, timeout=60)
    assert "it is 42" in done.stdout


def test_one_of_two_nodes_cut_off_leaves_the_other_and_its_ranks(opened: Opened) -> None:
    session = opened("gpu[001-002],dead", "openssh")
    session.ask(ListJobs())
    session.ask(OpenJob("simulated"))
    os.kill(ssh_children()[-1], signal.SIGKILL)
    snapshot = session.ask(GatherSnapshot())
    assert sorted(one.kind for one in snapshot.hosts) == ["error", "ok", "refused"]
    troubles = {one.hosts: one for one in session.ask(ListTroubles())}
    assert "cannot be reached" in troubles["dead"].what
    assert troubles["dead"].command == "ssh -v dead true"
    session.close()
    assert ssh_children() == []


@pytest.mark.slow
def test_a_node_that_floods_is_cut_off_and_leaves_nothing(opened: Opened) -> None:
    session = opened("gpu[001-002],flood")
    session.ask(ListJobs())
    snapshot = session.ask(OpenJob("simulated"))
    kinds = {one.host: (one.kind, one.message) for one in snapshot.hosts}
    assert kinds["gpu001"][0] == kinds["gpu002"][0] == "ok"
    assert kinds["flood"][0] == "protocol" and "more than 256 MiB" in kinds["flood"][1]
    assert snapshot.diagnosis.findings[0].verdict == "H1"
    folder = session.source._folder  # type: ignore[attr-defined]
    kept = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert kept < 64 * 2**20


def test_a_wrong_setup_is_reported_by_host_with_what_to_type(opened: Opened) -> None:
    session = opened("dead,stranger,impostor,bare,old")
    assert session.ask(ListJobs()) == ()
    with pytest.raises(UsageError, match="no host has evidence of any job"):
        session.ask(GetSnapshot())
    troubles = {one.hosts: one for one in session.ask(ListTroubles())}
    commands = {host: one.command for host, one in troubles.items()}
    assert commands == {
        "dead": "ssh -v dead true",
        "stranger": "ssh-add -l; ssh -o BatchMode=yes stranger true",
        "impostor": "ssh impostor",
        "bare": "ssh bare 'command -v oncall'  # or set `command` under [fleet]",
        "old": "ssh old oncall --version; oncall --version",
    }
    assert all(one.silent and one.count == 1 for one in troubles.values())
    assert "not let us log in" in troubles["stranger"].what


def test_a_detail_is_asked_over_a_connection_of_its_own(opened: Opened) -> None:
    """So that it need not wait for a gather, which may wait for another host."""
    session = opened("gpu[001-002]", "openssh")
    session.ask(ListJobs())
    snapshot = session.ask(OpenJob("simulated"))
    logins = ssh_children()
    assert not session.ask(GetRates("nic gpu001 mlx5_0"))  # none are recorded, and it was asked
    assert len(ssh_children()) == len(logins) + 1
    assert session.ask(GetSnapshot()).diagnosis.findings == snapshot.diagnosis.findings
    session.close()
    assert ssh_children() == []

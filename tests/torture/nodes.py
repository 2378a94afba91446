"""A third of the nodes says nothing, each in a way of its own, over a real sshd.

A real job of eight ranks on eight nodes hangs because of rank 5; its collectors have sealed. Then
three nodes refuse, hang, freeze, answer garbage or answer slowly. The diagnosis must come in
bounded time, count exactly who answered, say of each silent node that it did not, and still name
rank 5 or, where its node is among the silent ones, no other rank as the culprit.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopback import Loopback, why_not

from oncall.demo.demonstration import PARAMETERS, broken_cluster
from oncall.demo.faults import fault_named
from oncall.demo.layout import JOB, Layout
from oncall.native import NotBuilt, standin_folder

from .outcome import Outcome, Skipped

NODES = tuple(f"node{number:02}" for number in range(8))
CULPRIT = 5  # rank, and with one rank a node the number of its node
_ANSWER_TIMEOUT_S = 20  # as the configuration below says
_MOST_S = 90  # for a diagnosis on a machine that runs the eight nodes too
# The job records nothing more: on a slow machine the last diagnosis comes after the ten minutes
# that are asked for by default.
_SINCE = "2h"

_GARBAGE = "head -c 100000 /dev/urandom"
_WRONG = """echo '{"part": "ops", "rows": 9999999999, "bytes": 9}'; head -c 9 /dev/zero"""
_SLOW = "while true; do printf x; sleep 1; done"
_FROZEN = 'echo $$ >> "$ONCALL_RUN_DIR/frozen"; kill -STOP $$'
_DEAD = "kill -9 $$"
_FLOOD = "yes"
_FAILS = "echo 'no space left on device' >&2; exit 1"
# What each of three nodes does instead of answering.
SILENCES: Sequence[Mapping[int, str]] = (
    {0: _GARBAGE, 2: _SLOW, 7: _FROZEN},
    {1: _DEAD, 3: _WRONG, 6: _FLOOD},
    {0: _FAILS, 4: _FROZEN, CULPRIT: _SLOW},
    {2: _FROZEN, 3: _FROZEN, CULPRIT: _FROZEN},
)


@dataclass(frozen=True)
class Answered:
    """A diagnosis and how long it took."""

    code: int
    seconds: float
    diagnosis: dict[str, Any]
    errors: str


def silent(folder: Path) -> Outcome:
    """Every set of silences once."""
    if reason := why_not():
        raise Skipped(reason)
    try:
        standin_folder()
    except NotBuilt as error:
        raise Skipped(str(error)) from error
    with Loopback(folder / "ssh", more_real=NODES) as fleet:
        _record(fleet, folder / "job")
        failures = _check(_diagnose(fleet, folder), {}, "all answer")
        slowest = 0.0
        for silences in SILENCES:
            for node, script in silences.items():
                fleet.program(NODES[node], script)
            answered = _diagnose(fleet, folder)
            slowest = max(slowest, answered.seconds)
            failures += _check(answered, silences, f"silent {sorted(silences)}")
            _end_frozen(fleet)
            for node in silences:
                fleet.program(NODES[node], f'exec {sys.executable} -m oncall.cli.main "$@"')
    return Outcome(
        "3 of 8 nodes silent, over sshd",
        len(SILENCES),
        note=f"slowest diagnosis {slowest:.0f} s, of {_ANSWER_TIMEOUT_S} s patience a phase",
        failures=tuple(failures),
    )


def _end_frozen(fleet: Loopback) -> None:
    """What is stopped does not notice that its connection has ended."""
    for name in NODES:
        frozen = fleet.nodes[name].run / "frozen"
        for pid in frozen.read_text().split() if frozen.exists() else ():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        frozen.unlink(missing_ok=True)


def _record(fleet: Loopback, folder: Path) -> None:
    """A job on all nodes that hangs, recorded and sealed."""
    folder.mkdir()
    places = [(name, fleet.nodes[name].data, fleet.nodes[name].run) for name in NODES]
    with broken_cluster(
        fault_named("H1"),
        Layout.on(places, len(NODES)),
        folder,
        lambda what, how: None,  # noqa: ARG005
    ) as cluster:
        cluster.seal()


def _diagnose(fleet: Loopback, folder: Path) -> Answered:
    settings = folder / "oncall" / "config.toml"
    settings.parent.mkdir(exist_ok=True)
    ssh = json.dumps(["-F", str(fleet.config)])
    settings.write_text(f'[fleet]\nssh_options = {ssh}\nanswer_timeout = "{_ANSWER_TIMEOUT_S} s"\n')
    options = [f"--param={name}={value}" for name, value in PARAMETERS.items()]
    options += ["--job", JOB, "--hosts", "node[00-07]", "--format", "json"]
    options += ["--since", _SINCE]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "oncall.cli.main", "diagnose", *options],
        env=os.environ | {"XDG_CONFIG_HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=_MOST_S * 3,
        check=False,
    )
    seconds = time.monotonic() - began
    found = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    return Answered(done.returncode, seconds, found, done.stderr)


def _check(answered: Answered, silences: Mapping[int, str], what: str) -> list[str]:
    """What is wrong with a diagnosis while these nodes are silent."""
    wrong = []
    if not answered.diagnosis:
        return [f"{what}: no diagnosis ({answered.code}): {answered.errors[-300:]}"]
    if "Traceback" in answered.errors:
        wrong.append(f"a traceback: {answered.errors[-300:]}")
    if answered.seconds > _MOST_S:
        wrong.append(f"took {answered.seconds:.0f} s")
    coverage = answered.diagnosis["coverage"]
    counted = (coverage["nodes"], coverage["answered"])
    if counted != (len(NODES), len(NODES) - len(silences)):
        wrong.append(f"nodes and answers are counted as {counted}")
    named = {node for gap in coverage["gaps"] for node in gap["nodes"]}
    if unnamed := {NODES[node] for node in silences} - named:
        wrong.append(f"not said to be silent: {sorted(unnamed)}")
    # On a busy machine links and stages may be slow, too; the question is who stopped the job.
    roots = [
        each
        for each in answered.diagnosis["findings"]
        if each["explained_by"] is None and each["class"] == "hang"
    ]
    blamed = {blame.get("rank") for root in roots for blame in root["blame"]} - {None}
    if CULPRIT not in silences and (answered.code, blamed) != (1, {CULPRIT}):
        wrong.append(f"exit {answered.code}, blames ranks {sorted(blamed)}")
    if CULPRIT in silences and (blamed - set(silences) or answered.code == 0):
        wrong.append(f"exit {answered.code}, blames ranks {sorted(blamed)}, who answered")
    return [f"{what}: {each}" for each in wrong]

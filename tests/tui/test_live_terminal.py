"""The console on nodes behind a real sshd, on a pseudo-terminal, ended in every rude way: the
terminal is left clean, and no login outlives it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .terminal import DEADLINE_S, Terminal, terminal

sys.path.insert(0, str(Path(__file__).parents[1] / "fleet" / "ssh"))

from loopback import Loopback, why_not


@pytest.fixture(scope="module")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """Nodes without evidence."""
    if reason := why_not():
        pytest.skip(reason)
    with Loopback(tmp_path_factory.mktemp("ssh")) as running:
        yield running


@pytest.fixture
def environment(
    loopback: Loopback, tmp_path: Path, configure: Callable[[str], Path]
) -> dict[str, str]:
    """The console's: a configuration by which each node is reached by an ssh of its own."""
    ssh = json.dumps(["-F", str(loopback.config)])
    configure(f'[fleet]\nssh_options = {ssh}\ntransport = "openssh"\n')
    places = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
    return {"SSH_AUTH_SOCK": "", **dict.fromkeys(places, str(tmp_path))}


def logins(loopback: Loopback) -> list[int]:
    """The ssh processes on this machine that log in to the nodes."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0] == b"ssh" and str(loopback.config).encode() in words and b"-G" not in words:
            found.append(int(place.name))
    return found


def connected(console: Terminal, loopback: Loopback) -> None:
    console.wait_for("no host has evidence of any job")
    assert len(logins(loopback)) == 2


def wait_for_no_login(loopback: Loopback) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while left := logins(loopback):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


@pytest.mark.slow
def test_logins_that_are_killed_are_reported_and_the_console_stays(
    loopback: Loopback, environment: dict[str, str]
) -> None:
    with terminal("--hosts", "gpu[001-002]", environment=environment) as console:
        connected(console, loopback)
        for pid in logins(loopback):
            os.kill(pid, signal.SIGKILL)
        console.wait_for("could not answer")
        console.type("\x11")
        assert console.wait() == 0
        assert console.left_clean
        assert not logins(loopback)


def test_a_console_that_is_killed_outright_leaves_no_login(
    loopback: Loopback, environment: dict[str, str]
) -> None:
    with terminal("--hosts", "gpu[001-002]", environment=environment) as console:
        connected(console, loopback)
        console.signal(signal.SIGKILL)
        assert console.wait() == -signal.SIGKILL
        wait_for_no_login(loopback)


@pytest.mark.slow
def test_a_terminal_that_takes_nothing_any_more_does_not_keep_it(
    loopback: Loopback, environment: dict[str, str]
) -> None:
    """As with ctrl+s pressed, or a connection that is stuck."""
    with terminal("--hosts", "gpu[001-002]", size=(250, 90), environment=environment) as console:
        connected(console, loopback)
        deadline = time.monotonic() + DEADLINE_S
        unread, still = 0, 0
        while still < 10:  # each T draws the whole screen anew, and nobody reads
            assert time.monotonic() < deadline, f"{unread} bytes unread, and it takes more"
            console.type("T")
            time.sleep(0.05)
            before, unread = unread, console.unread
            still = still + 1 if unread == before > 0 else 0
        console.signal(signal.SIGTERM)
        while console.status is None:
            assert time.monotonic() < deadline, "it does not end"
            done, status = os.waitpid(console.pid, os.WNOHANG)
            if done:
                console.status = os.waitstatus_to_exitcode(status)
            time.sleep(0.02)
        assert console.status == 128 + signal.SIGTERM
        wait_for_no_login(loopback)

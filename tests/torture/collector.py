"""A real `oncall collect`, started the slow way or the quick way, and killed.

Slow: a new interpreter, as systemd starts it; most of its first second goes into imports. Quick: a
child forked from a process that has done the same imports; it runs the same `main` with the same
command line. Most kills use the quick way, so that a thousand fit into minutes.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from oncall.node.store.places import rings_dir, socket_path
from oncall.node.store.wire import Request

NODE = "gpu017"
_WITHIN_S = 300.0  # for anything to happen on a machine that does much other work
_IMPORTED = ["oncall.cli.commands", "oncall.node.agent.service"]
_SETTINGS = {
    "keep_free": "0 B",
    "sources": ["rings"],
    "drain_every": "20 ms",
    "commit_every": "50 ms",
    "seal_every": "300 ms",
}


@dataclass(frozen=True)
class Node:
    """Where a collector works: its folders, its configuration, what it says."""

    folder: Path
    data: Path
    run: Path

    @property
    def rings(self) -> Path:
        return rings_dir(self.run)

    @property
    def log(self) -> Path:
        return self.folder / "collector.log"

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    @classmethod
    def make(cls, folder: Path, data: Path | None = None, **settings: object) -> Node:
        """Folders and a configuration that commits and seals often, with `settings` on top."""
        node = cls(folder, data or folder / "data", folder / "run")
        node.folder.mkdir(parents=True)
        node.data.mkdir()
        node.rings.mkdir(parents=True)
        node.configure(**settings)
        return node

    def configure(self, **settings: object) -> None:
        values = _SETTINGS | settings
        lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
        (self.folder / "collect.toml").write_text("\n".join(lines) + "\n")

    @property
    def arguments(self) -> list[str]:
        """The command line behind `oncall`."""
        return [
            *("collect", "--node", NODE, "--config", str(self.folder / "collect.toml")),
            *("--data-dir", str(self.data), "--run-dir", str(self.run)),
        ]

    def ask(self, request: Request, within_s: float = 30.0) -> bytes:
        """The answer of its collector as it comes; cut short where the collector dies."""
        answer = bytearray()
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(within_s)
            client.connect(str(socket_path(self.run)))
            client.sendall(request.line())
            with contextlib.suppress(ConnectionError):
                while piece := client.recv(2**16):
                    answer += piece
        return bytes(answer)


def _toml(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(f'"{each}"' for each in value) + "]"
    return str(value) if isinstance(value, int) else f'"{value}"'


class Collector:
    """A running collector of a node, whichever way it was started."""

    def __init__(
        self,
        node: Node,
        *options: str,
        environment: Mapping[str, str] | None = None,
        quick: bool = False,
    ) -> None:
        self.node = node
        self.began_ns = time.time_ns()
        self._said_before = len(node.said)
        if quick:
            self._forked = _forked_from().Process(
                target=_collect, args=([*node.arguments, *options], str(node.log)), daemon=True
            )
            self._forked.start()
            self._child: subprocess.Popen[bytes] | None = None
            self.pid = self._forked.pid or 0
        else:
            command = [sys.executable, "-m", "oncall.cli.main", *node.arguments, *options]
            with node.log.open("ab") as log:
                self._child = subprocess.Popen(
                    command,
                    env=os.environ | dict(environment or {}),
                    stdin=subprocess.DEVNULL,
                    stderr=log,
                )
            self.pid = self._child.pid

    @property
    def said(self) -> str:
        """What it has said so far, without its predecessors' lines."""
        return self.node.said[self._said_before :]

    @property
    def exit_code(self) -> int | None:
        return self._child.poll() if self._child else self._forked.exitcode

    @property
    def is_up(self) -> bool:
        return "collecting on" in self.said

    def wait_until_up(self) -> None:
        """Raises AssertionError if it leaves, or takes too long: with the CPU time that it had."""
        try:
            wait_until(lambda: self.is_up or self.exit_code is not None, "the collector starts")
        except AssertionError as error:
            ticks = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
            raise AssertionError(f"{error}; ticks of CPU time: {ticks}") from None
        if self.exit_code is not None:
            raise AssertionError(f"the collector left ({self.exit_code}): {self.said[-2000:]}")

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.end(signal.SIGKILL)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, and wait until it is gone; its exit code."""
        if self.exit_code is None:
            os.kill(self.pid, number)
        if self._child:
            return self._child.wait(_WITHIN_S)
        self._forked.join(_WITHIN_S)
        assert self._forked.exitcode is not None
        return self._forked.exitcode


def wait_until(is_so: Callable[[], object], what: str, within_s: float = _WITHIN_S) -> None:
    """Poll until it holds. Raises AssertionError at the deadline."""
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: not within {within_s:g} s"
        time.sleep(0.005)


def _forked_from() -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *_IMPORTED])
    return context


def _collect(arguments: list[str], log: str) -> None:
    """`oncall ARGUMENTS` in a child that has its imports done."""
    from oncall.cli.main import main

    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115 - to the end
    sys.argv = ["oncall", *arguments]
    main()

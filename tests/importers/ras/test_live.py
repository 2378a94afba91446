"""A live server of NCCL RAS: asked, refused, silent."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.importers.ras.answers import HEAD, WORLD, comm, poll, rank
from tests.sql import rows
from typer.testing import CliRunner

from oncall.cli.commands import app
from oncall.core.errors import BadInput
from oncall.evidence.incident import Incident
from oncall.importers.ras import importer as nccl_ras
from oncall.importers.ras.client import fetch


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    understands_json = True
    silent = False
    greets = "SERVER PROTOCOL 2"
    asked: ClassVar[list[str]] = []


class _Handler(socketserver.StreamRequestHandler):
    """NCCL's side of the protocol."""

    server: _Server

    def handle(self) -> None:
        form = "text"
        for raw in self.rfile:
            command = raw.decode().strip().upper()
            self.server.asked.append(command)
            if self.server.silent:
                continue
            if command.startswith("CLIENT PROTOCOL"):
                self._say(self.server.greets)
            elif command.startswith("TIMEOUT"):
                self._say("OK")
            elif command == "SET FORMAT JSON" and self.server.understands_json:
                form = "json"
                self._say("OK")
            elif command == "VERBOSE STATUS":
                answer = poll(comm("0x1", [rank(0), rank(1)])) if form == "json" else HEAD + WORLD
                self.wfile.write(answer.encode())
                return
            else:
                self._say(f"ERROR: Unknown command {command}")

    def _say(self, line: str) -> None:
        self.wfile.write(line.encode() + b"\n")


@contextmanager
def server(**settings: Any) -> Iterator[int]:
    with _Server(("127.0.0.1", 0), _Handler) as running:
        for name, value in settings.items():
            setattr(running, name, value)
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield running.server_address[1]
        finally:
            running.shutdown()
            thread.join()


def test_a_running_job_answers_in_json() -> None:
    with server() as port, Incident.empty() as incident:
        nccl_ras.read([Path(f"ras://127.0.0.1:{port}")], incident, "j")
        assert incident.rows("launches") == 2
        assert rows(incident, "SELECT problem FROM recordings") == [(None,)]


def test_an_older_job_is_asked_only_at_the_engineers_word() -> None:
    asked: list[str] = []
    with server(understands_json=False, asked=asked) as port:
        with pytest.raises(BadInput, match=r"older than 2\.28\.7.* --yes-risk-the-job"):
            fetch("127.0.0.1", port)
        assert asked == ["CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT JSON"]
        assert fetch("127.0.0.1", port, risk_the_job=True).startswith("NCCL version 2.27.5")


@pytest.mark.parametrize("risk", [False, True])
def test_the_word_reaches_the_job_from_the_command_line(risk: bool) -> None:
    with server(understands_json=False) as port:
        options = ["--yes-risk-the-job"] if risk else []
        said = CliRunner().invoke(app, ["diagnose", f"ras://127.0.0.1:{port}", *options])
    assert ("not queried" in said.output) != risk


@pytest.mark.parametrize("answer", ["", "OK\n" * 3000, "\0" * 9000, "SERVER PROTOCOL 2"])
def test_what_ends_or_floods_the_greeting_is_refused(answer: str) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), _says(answer)) as running:
        thread = threading.Thread(target=running.handle_request)
        thread.start()
        with pytest.raises(BadInput):
            fetch("127.0.0.1", running.server_address[1], timeout_s=0.1)
        thread.join()


def _says(answer: str) -> type[socketserver.BaseRequestHandler]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(answer.encode())

    return Handler


def test_what_is_not_ras_is_reported() -> None:
    with server(greets="220 mail ESMTP") as port, pytest.raises(BadInput, match="220 mail"):
        fetch("127.0.0.1", port)


def test_nobody_listens() -> None:
    with server() as port:
        pass
    with pytest.raises(BadInput, match="NCCL_RAS_ADDR"):
        fetch("127.0.0.1", port, timeout_s=0.1)


def test_silence_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncall.importers.ras.client._MARGIN_S", 0.1)
    with server(silent=True) as port, pytest.raises(BadInput, match="no answer"):
        fetch("127.0.0.1", port, timeout_s=0.1)

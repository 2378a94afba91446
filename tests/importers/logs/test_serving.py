# ruff: noqa: E501 - lines of logs as programs print them
"""What single lines say of a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.importers.logs.single_lines import found_in

SERVING = "INFO 11-27 03:01:32 [loggers.py:127] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {} tokens/s, Running: {} reqs, Waiting: 20 reqs"


@pytest.mark.parametrize(
    ("text", "kind", "code", "number"),
    [
        (SERVING.format("2190.9", 63), "served", None, None),
        (SERVING.format("0.0", 63), "server", "no_token", 63),
        (
            "(EngineCore_0 pid=2211) INFO 11-27 03:02:32 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 second(s). This typically happens when",
            "server",
            "no_block",
            60,
        ),
        ("TimeoutError: RPC call to execute_model timed out.", "server", "no_answer", None),
        (
            "[2026-11-27 03:06:15 TP3] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
            "server",
            "watchdog",
            300,
        ),
        (
            "ERROR 11-27 03:06:32 [core_client.py:562] Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.",
            "exit",
            "unknown",
            0,
        ),
    ],
)
def test_servers(
    text: str, kind: str, code: str | None, number: int | None, tmp_path: Path
) -> None:
    [(line, found)] = found_in(text + "\n", tmp_path)
    columns = found.columns
    assert (columns["kind"], columns["code"], columns.get("number")) == (kind, code, number)
    assert line.at_ns is not None or "RPC" in text


def test_an_idle_server_is_no_event(tmp_path: Path) -> None:
    assert not found_in(SERVING.format("0.0", 0) + "\n", tmp_path)

"""What a silent host said last: who ran there, and how long ago that was."""

from __future__ import annotations

from pathlib import Path

from oncall.fleet.memory import Memory
from oncall.fleet.outcome import Outcome
from oncall.node.store.parts import ReceivedPart


def test_memberships_are_recalled_for_hosts_that_do_not_answer(tmp_path: Path) -> None:
    got = tmp_path / "part"
    got.write_bytes(b"parquet")
    memory = Memory(tmp_path / "cache")
    host = "../gpu017"
    memory.keep("it's", [ReceivedPart(host, table, 8, got) for table in ("ranks", "ops")])
    assert {path.name for path in tmp_path.iterdir()} == {"part", "cache"}
    parts, outcomes = memory.recall("it's", {host: Outcome(host, "timeout")})
    assert [(part.sender, part.table, part.rows) for part in parts] == [(host, "ranks", 8)]
    assert parts[0].path.read_bytes() == b"parquet"
    assert "last answer " in outcomes[host].message


def test_hosts_that_answer_and_other_jobs_are_left_alone(tmp_path: Path) -> None:
    got = tmp_path / "part"
    got.write_bytes(b"parquet")
    memory = Memory(tmp_path / "cache")
    memory.keep("a", [ReceivedPart("gpu017", "ranks", 8, got)])
    answered = {"gpu017": Outcome("gpu017", "ok")}
    assert memory.recall("a", answered) == ([], answered)
    silent = {"gpu017": Outcome("gpu017", "timeout")}
    assert memory.recall("b", silent) == ([], silent)

"""Logs compressed with zstd: read where a package can, else refused with what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from oncall.core.errors import BadInput
from oncall.evidence.incident import Incident
from oncall.importers.detect import load
from oncall.importers.packed import ZSTD

LINE = "[rank3]: KeyError: 'tokens'\n"


def packed(text: str) -> bytes:
    package = pytest.importorskip("zstandard", reason="the package zstandard is not installed")
    return bytes(package.ZstdCompressor().compress(text.encode()))


def test_a_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "job.log.zst"
    path.write_bytes(packed("[rank3]: Traceback (most recent call last):\n" + LINE * 50_000))
    with Incident.empty() as incident:
        load([path], incident)
        assert not incident.is_empty("log_events")


def test_a_torn_one_gives_what_came_before(tmp_path: Path) -> None:
    path = tmp_path / "job.log.zst"
    text = "".join(f"[rank{rank}]: KeyError: {rank * 7919}\n" for rank in range(100_000))
    data = packed(text)
    path.write_bytes(data[: len(data) // 2])
    with Incident.empty() as incident:
        load([path], incident)
        assert not incident.is_empty("log_events")


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.log.zst"
    path.write_bytes(packed(LINE + "\n" * (600 << 20)))
    with Incident.empty() as incident:
        load([path], incident)
        problems = incident.con.execute("SELECT problem FROM recordings").fetchall()
    assert "unpacks to more than" in problems[0][0]


def test_without_a_package_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    path = tmp_path / "job.log.zst"
    path.write_bytes(ZSTD + b"\0" * 100)
    with (
        Incident.empty() as incident,
        pytest.raises(BadInput, match=r"oncall-console\[zstd\].*zstd -d"),
    ):
        load([path], incident)

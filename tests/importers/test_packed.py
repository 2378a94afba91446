"""Logs that are compressed, or whose text is UTF-16, are read as others; torn ones to their end."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from oncall.core.errors import Unreadable
from oncall.evidence.incident import Incident
from oncall.importers.detect import load
from oncall.importers.files import Stream

TEXT = "".join(f"[rank{rank}]: KeyError: {rank * 7919}\n" for rank in range(100))
COMPRESSED = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


def read(path: Path) -> bytes:
    with Stream(path) as stream:
        parts = []
        while data := stream.read(1 << 16):
            parts.append(data)
    return b"".join(parts)


@pytest.mark.parametrize("ending", COMPRESSED)
def test_members_one_after_another_are_one_file(tmp_path: Path, ending: str) -> None:
    compress: Callable[[bytes], bytes] = COMPRESSED[ending]
    path = tmp_path / f"job.log.{ending}"
    path.write_bytes(compress(TEXT.encode()) + compress(b"") + compress(b"the end\n"))
    assert read(path) == TEXT.encode() + b"the end\n"


@pytest.mark.parametrize("ending", COMPRESSED)
def test_a_torn_log_gives_what_came_before(tmp_path: Path, ending: str) -> None:
    compress: Callable[[bytes], bytes] = COMPRESSED[ending]
    data = b"".join(compress(TEXT[at : at + 1_000].encode()) for at in (0, 1_000))
    path = tmp_path / f"job.log.{ending}"
    path.write_bytes(data[:-40])
    with Incident.empty() as incident:
        load([path], incident)
        assert not incident.is_empty("log_events")
        ((problem,),) = incident.con.execute("SELECT problem FROM recordings").fetchall()
    assert "cannot be unpacked further" in problem


def test_xz_that_asks_for_gigabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.log.xz"
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 29}]
    path.write_bytes(lzma.compress(b"x" * 99, filters=filters))
    with pytest.raises(Unreadable, match="emory"):
        read(path)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_text_in_utf_16_is_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(
        ("\N{BYTE ORDER MARK}" + TEXT + "caf\N{LATIN SMALL LETTER E WITH ACUTE}").encode(encoding)
    )
    assert read(path).decode() == TEXT + "caf\N{LATIN SMALL LETTER E WITH ACUTE}"
    with Incident.empty() as incident:
        load([path], incident)
        assert not incident.is_empty("log_events")

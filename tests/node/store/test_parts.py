"""Parts that nodes send: what is too much is left out whole, and the rest is in."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from oncall.core import room
from oncall.evidence.incident import Incident
from oncall.node.store import parts
from oncall.node.store.parts import ReceivedPart, join_parts, load_parts


def _part(folder: Path, sender: str, select: str, rows: int) -> ReceivedPart:
    path = folder / f"{sender}-{len(list(folder.iterdir()))}.parquet"
    with duckdb.connect() as con:
        con.execute(f"COPY ({select}) TO '{path}'")
    return ReceivedPart(sender, "ranks", rows, path)


def _ranks(folder: Path, sender: str, rows: int, stored: int | None = None) -> ReceivedPart:
    select = f"SELECT 'j' AS job, range::INTEGER AS rank FROM range({rows})"
    return _part(folder, sender, select, rows if stored is None else stored)


def test_a_sender_of_many_small_parts_is_left_out_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "MOST_ROWS", 100)
    sent = [_ranks(tmp_path, "evil", 40) for _ in range(3)] + [_ranks(tmp_path, "good", 90)]
    with Incident.empty() as incident:
        bad = load_parts(incident.con, sent)
        assert {one.part.sender for one in bad} == {"evil"}
        assert len(bad) == 3
        assert "120 rows, more than the 100" in bad[0].problem
        assert incident.rows("ranks") == 90


def test_where_all_together_are_too_many_those_with_most_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "most_rows", lambda: 100)
    sent = [_ranks(tmp_path, f"n{n}", n) for n in (10, 60, 50)]
    with Incident.empty() as incident:
        bad = load_parts(incident.con, sent)
        assert [one.part.sender for one in bad] == ["n60"]
        assert "no room for its 60 rows" in bad[0].problem
        assert incident.rows("ranks") == 60


def test_rows_are_those_of_the_row_groups_not_what_the_file_says(tmp_path: Path) -> None:
    part = _ranks(tmp_path, "evil", 1000)
    data = bytearray(part.path.read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    at = data.index(b"\xd0\x0f", footer)  # 1,000 as Thrift writes it: first the file's own count
    data[at : at + 2] = b"\x94\x01"  # 74
    part.path.write_bytes(data)
    with Incident.empty() as incident:
        bad = load_parts(incident.con, [ReceivedPart("evil", "ranks", 74, part.path)])
        assert "1000 rows of ranks, 74" in bad[0].problem
        assert incident.rows("ranks") == 0


def test_text_that_a_few_bytes_repeat_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "MOST_TEXT_BYTES", 1 << 20)
    select = "SELECT 'j' AS job, 1 AS rank, repeat('x', 1000) AS node FROM range(60000)"
    with Incident.empty() as incident:
        (bad,) = load_parts(incident.con, [_part(tmp_path, "evil", select, 60_000)])
        assert bad.problem == "57 MiB of text in it"


def test_what_nobody_fills_takes_no_memory_in_a_large_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "ROWS_IN_A_PART", 200_000)
    with Incident.empty() as incident:
        assert not load_parts(incident.con, [_ranks(tmp_path, f"n{n}", 125_000) for n in range(4)])
        assert incident.rows("ranks") == 500_000
        stored = dict(
            incident.con.execute(
                "SELECT column_name, list_sort(list(DISTINCT compression)) "
                "FROM pragma_storage_info('ranks') WHERE segment_type <> 'VALIDITY' GROUP BY ALL"
            ).fetchall()
        )
        assert "Uncompressed" not in stored["node"]


def test_parts_of_many_senders_are_joined_to_few_without_the_bad_ones(tmp_path: Path) -> None:
    sent = [_ranks(tmp_path, f"n{n}", 10 + n) for n in range(5)]
    sent.append(_ranks(tmp_path, "short", 10, stored=11))
    sent.append(_part(tmp_path, "newer", "SELECT 'j' AS job, 7 AS rank, 'x' AS of_tomorrow", 1))
    sent.append(_part(tmp_path, "other", "SELECT 'j' AS job, 'seven' AS rank", 1))
    sent[0].path.write_bytes(b"no Parquet")
    folder = tmp_path / "joined"
    folder.mkdir()
    with duckdb.connect() as con:
        joined, bad = join_parts(con, sent, folder)
        assert {one.part.sender for one in bad} == {"n0", "short", "other"}
        assert sum(part.rows for part in joined) == 11 + 12 + 13 + 14 + 1
        assert len(joined) < 5
    with Incident.empty() as incident:
        assert not load_parts(incident.con, joined)
        assert incident.rows("ranks") == 51
        assert "of_tomorrow" not in str(duckdb.read_parquet([str(p.path) for p in joined]).columns)

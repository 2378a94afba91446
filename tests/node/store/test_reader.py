"""Reading many shards as one: what cannot be read is named, and nothing else is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from oncall.node.store.catalog import Shard, sealed_shards
from oncall.node.store.reader import open_shards

Sealed = Callable[..., Shard]


def _change(shard: Shard, *statements: str) -> None:
    con = duckdb.connect(str(shard.path))
    for statement in statements:
        con.execute(statement)
    con.close()


def test_no_shard_is_no_row_and_no_error(tmp_path: Path) -> None:
    with open_shards(sealed_shards(tmp_path / "nothing")) as shards:
        assert shards.con.execute("FROM transfers").fetchall() == []


def test_columns_go_by_name_and_what_is_lacking_is_null(tmp_path: Path, sealed: Sealed) -> None:
    older = sealed(tmp_path, 1, rows=5)
    _change(older, "ALTER TABLE ops DROP COLUMN rank", "DROP TABLE IF EXISTS transfers")
    sealed(tmp_path, 2, rows=5)
    with open_shards(sealed_shards(tmp_path)) as shards:
        rows = shards.con.execute("SELECT seq, rank FROM ops ORDER BY seq").fetchall()
    assert [rank for _, rank in rows] == [None] * 5 + [3] * 5
    assert [seq for seq, _ in rows] == list(range(6, 16))


def test_a_shard_from_the_future_is_named_and_left_out(tmp_path: Path, sealed: Sealed) -> None:
    sealed(tmp_path, 0)
    future = sealed(tmp_path, 1)
    _change(future, "UPDATE meta SET schema_version = 999, oncall_version = '9.0'")
    with open_shards(sealed_shards(tmp_path)) as shards:
        assert shards.con.execute("SELECT max(seq) FROM ops").fetchall() == [(100,)]
    (gap,) = shards.gaps
    assert (gap.shard.path, gap.reason) == (future.path, "newer")
    assert "oncall 9.0 with evidence schema 999" in gap.problem
    assert "upgrade" in gap.problem


def test_a_file_of_another_kind_is_named(tmp_path: Path, sealed: Sealed) -> None:
    stranger = sealed(tmp_path, 0)
    _change(stranger, "DROP TABLE meta")
    garbage = tmp_path / "gpu017.5-6.duckdb"
    garbage.write_bytes(b"no database" * 10_000)
    with open_shards(sealed_shards(tmp_path)) as shards:
        assert shards.con.execute("FROM ops").fetchall() == []
    assert {gap.shard.path for gap in shards.gaps} == {stranger.path, garbage}


def test_a_shard_cut_off_anywhere_is_named_and_the_others_are_read(
    tmp_path: Path, sealed: Sealed
) -> None:
    sealed(tmp_path, 0, rows=10)
    victim = sealed(tmp_path, 1, rows=50_000)
    whole = victim.path.read_bytes()
    for part in range(64):
        cut = len(whole) * part // 64
        victim.path.write_bytes(whole[:cut])
        with open_shards(sealed_shards(tmp_path)) as shards:
            assert shards.con.execute("SELECT count(*) FROM ops").fetchall() == [(10,)], cut
            (gap,) = shards.gaps
            assert (gap.shard.path, gap.reason) == (victim.path, "damaged"), cut


def test_damage_that_shows_only_when_read_can_be_left_out(tmp_path: Path, sealed: Sealed) -> None:
    sealed(tmp_path, 0, rows=10)
    victim = sealed(tmp_path, 1, rows=200_000)
    whole = victim.path.read_bytes()
    shown_late = 0
    for part in range(1, 32):
        at = len(whole) * part // 32
        victim.path.write_bytes(whole[:at] + b"\x55" * 4096 + whole[at + 4096 :])
        with open_shards(sealed_shards(tmp_path)) as shards:
            try:
                rows = shards.con.execute("SELECT count(*), sum(hash(ops)) FROM ops").fetchall()
            except duckdb.Error as error:
                shown_late += 1
                assert [gap.shard.path for gap in shards.leave_out_damaged(error)] == [victim.path]
                rows = shards.con.execute("SELECT count(*), sum(hash(ops)) FROM ops").fetchall()
            assert rows[0][0] == (10 if shards.gaps else 200_010)
    assert shown_late


def test_tables_beyond_the_schema_are_views_too(tmp_path: Path, sealed: Sealed) -> None:
    with_digest = sealed(tmp_path, 0)
    _change(with_digest, "CREATE TABLE digest_ops AS FROM ops LIMIT 7")
    sealed(tmp_path, 1)
    with open_shards(sealed_shards(tmp_path)) as shards:
        assert len(shards.con.execute("FROM digest_ops").fetchall()) == 7
        lacking = shards.con.execute(
            "SELECT start_ns FROM shards WHERE NOT list_contains(tables, 'digest_ops')"
        ).fetchall()
    assert lacking == [(shards.shards[1].start_ns,)]


def test_a_view_inside_a_shard_is_not_followed(tmp_path: Path, sealed: Sealed) -> None:
    shard = sealed(tmp_path, 0)
    _change(
        shard,
        "DROP TABLE IF EXISTS stacks",
        "CREATE VIEW stacks AS SELECT 'x' AS job, 1 AS rank, content FROM read_text('/etc/passwd')",
    )
    with open_shards(sealed_shards(tmp_path)) as shards:
        assert shards.con.execute("FROM stacks").fetchall() == []


@pytest.mark.parametrize("name", ["it's gpu017.1-2.duckdb", "live.duckdb", "x.duckdb.wal"])
def test_other_names_are_never_opened(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    assert sealed_shards(tmp_path) == []


def test_a_folder_with_a_quote_in_its_name(tmp_path: Path, sealed: Sealed) -> None:
    folder = tmp_path / "it's"
    folder.mkdir()
    sealed(folder, 0)
    with open_shards(sealed_shards(folder)) as shards:
        assert shards.con.execute("SELECT count(*) FROM ops").fetchall() == [(100,)]

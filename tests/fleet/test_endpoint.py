"""A node's answers: whatever a shard holds, the answer comes, and names what could not be read."""

from __future__ import annotations

import io
import json
import random
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import duckdb
import numpy as np
import pytest

from oncall.fleet.endpoint import sealed
from oncall.fleet.endpoint.node import Node
from oncall.fleet.endpoint.sealed import SealedAnswers
from oncall.fleet.endpoint.serve import respond
from oncall.node.store.batch import Batch
from oncall.node.store.catalog import Shard, sealed_shards
from oncall.node.store.reader import Shards, open_shards, read_shards
from oncall.node.store.shard_digest import ShardDigests
from oncall.node.store.wire import End, FrameDecoder, Request
from oncall.node.store.writer import LiveStore, Place

ROWS = 3_000
WALL_NS = 17 * 10**17
BLOCK_BYTES, HEADER_BYTES = 65_536, 3 * 4096


class Sink:
    """Keeps the rows that each part says it has."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}

    def part(self, table: str, rows: int) -> io.BytesIO:
        self.rows[table] = self.rows.get(table, 0) + rows
        return io.BytesIO()


def answered(
    node: Node, request: Request, kept: SealedAnswers | None = None
) -> tuple[dict[str, Any], dict[str, int]]:
    """The end of a node's answer, and its rows by table."""
    stream, sink = io.BytesIO(), Sink()
    respond(node, request.line(), stream, kept=kept)
    end = FrameDecoder(sink).feed(stream.getvalue())
    assert isinstance(end, End)
    return end.status, sink.rows


def _shard(folder: Path, number: int, wall_ns: int = WALL_NS) -> Shard:
    seq = np.arange(number * ROWS, (number + 1) * ROWS)
    began_ns = wall_ns + number * 10**10
    columns = {
        "job": "llama", "comm": 7, "seq": seq, "rank": 0, "kind": "coll",
        "op": ["AllReduce"] * ROWS,
        "enqueued_ns": began_ns + seq, "started_ns": began_ns + seq * 1000,
        "ended_ns": began_ns + seq * 1000 + np.random.default_rng(number).integers(1, 900, ROWS),
        "done": True,
    }  # fmt: skip
    store = LiveStore(Place(folder, "gpu017"), began_ns)
    store.write([Batch("ops", ROWS, columns)])
    return store.seal(began_ns + 10**10 - 1, ShardDigests().prepare)


@pytest.fixture(scope="module")
def sealed_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three sealed shards, to be copied."""
    folder = tmp_path_factory.mktemp("sealed")
    for number in range(3):
        _shard(folder, number)
    return folder


@pytest.fixture
def node(sealed_before: Path, tmp_path: Path) -> Node:
    shutil.copytree(sealed_before, tmp_path, dirs_exist_ok=True)
    return Node("gpu017", tmp_path, None)


def _flipped(whole: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(whole)
    for _ in range(rng.choice((1, 16, 256))):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def _page(filling: bytes) -> Callable[[bytes, random.Random], bytes]:
    def changed(whole: bytes, rng: random.Random) -> bytes:
        at = rng.randrange(len(whole) // 4096) * 4096
        return whole[:at] + filling * 4096 + whole[at + 4096 :]

    return changed


def _swapped(whole: bytes, rng: random.Random) -> bytes:
    """Two blocks in each other's place, sound by themselves."""
    blocks = [whole[at : at + BLOCK_BYTES] for at in range(HEADER_BYTES, len(whole), BLOCK_BYTES)]
    one, other = rng.sample(range(len(blocks)), 2)
    blocks[one], blocks[other] = blocks[other], blocks[one]
    return whole[:HEADER_BYTES] + b"".join(blocks)


def _cut(whole: bytes, rng: random.Random) -> bytes:
    return whole[: rng.randrange(len(whole))]


@pytest.mark.parametrize("damage", [_flipped, _page(b"\0"), _page(b"\x55"), _swapped, _cut])
def test_damage_in_one_shard_costs_its_rows_alone(
    node: Node, damage: Callable[[bytes, random.Random], bytes]
) -> None:
    victim = sealed_shards(node.data)[1].path
    whole = victim.read_bytes()
    for seed in range(4):
        victim.write_bytes(damage(whole, random.Random(seed)))
        hello, _ = answered(node, Request("hello"))
        assert "llama" in hello["jobs"], seed
        for ask in ("digest", "detail"):
            request = Request(ask, job="llama", tables=("ops",), budget_rows=10**5)
            status, rows = answered(node, request)
            if rows["ops"] < 3 * ROWS and ask == "detail":
                assert rows["ops"] >= 2 * ROWS, seed
                assert any(victim.name in gap for gap in status["gaps"]), seed
            assert rows["ops"], seed


def test_damage_to_the_last_shard_does_not_keep_the_next_from_being_sealed(node: Node) -> None:
    last = sealed_shards(node.data)[-1].path
    whole = last.read_bytes()
    for seed in range(6):
        last.write_bytes(_flipped(whole, random.Random(seed)))
        shard = _shard(node.data, 10 + seed)  # raises where preparing its digest fails
        with open_shards([shard]) as opened:
            assert opened.con.execute("SELECT count(*) FROM digest_ops").fetchall() != [(0,)]
        shard.path.unlink()


def test_a_fatal_error_makes_no_sound_shard_a_damaged_one(node: Node) -> None:
    """DuckDB then refuses everything in that instance: what is asked again is a new one."""
    asked = []

    def read(opened: Shards) -> int:
        asked.append(opened.con)
        if len(opened.shards) > 1:
            raise duckdb.FatalException("the instance has been invalidated")
        ((rows,),) = opened.con.execute("SELECT count(*) FROM ops").fetchall()
        return int(rows)

    with open_shards(sealed_shards(node.data)) as opened:
        assert read_shards(opened, read) == [ROWS] * 3
        assert opened.gaps == ()


def test_an_error_of_the_question_is_none_of_the_shards(node: Node) -> None:
    with (
        open_shards(sealed_shards(node.data)) as opened,
        pytest.raises(duckdb.CatalogException, match="nowhere"),
    ):
        read_shards(opened, lambda shards: shards.con.execute("FROM nowhere").fetchall())


def test_shards_of_after_now_are_left_out_and_said(tmp_path: Path) -> None:
    """A clock that was an hour ahead: what was written then would hide what is so now."""
    now_ns = time.time_ns()
    _shard(tmp_path, 0, now_ns - 10**11)
    _shard(tmp_path, 1, now_ns + 3600 * 10**9)
    live = Node("gpu017", tmp_path, tmp_path / "run")
    status, rows = answered(live, Request("detail", job="llama", tables=("ops",)))
    assert rows["ops"] == ROWS
    assert any("clock of this node was set back" in gap for gap in status["gaps"])
    later = Request("detail", job="llama", tables=("ops",), until_ns=now_ns + 7200 * 10**9)
    assert answered(live, later)[1]["ops"] == 2 * ROWS
    recording = Node("gpu017", tmp_path, None)
    every = answered(recording, Request("detail", job="llama", tables=("ops",)))
    assert every[1]["ops"] == 2 * ROWS


def test_one_answer_opens_so_many_shards_and_says_what_it_left(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealed, "MOST_SHARDS", 2)
    status, rows = answered(node, Request("detail", job="llama", tables=("ops",)))
    assert rows["ops"] == 2 * ROWS
    assert "1 older shards not read" in status["gaps"][0]


@pytest.mark.parametrize("seals", [1, 99])
def test_no_row_is_lost_to_a_shard_that_is_sealed_during_the_answer(
    seals: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector answers with the rows that it has not sealed, so after a seal with none."""
    asked = []

    def ask(*_: object) -> dict[str, Any]:
        if len(asked) < seals:
            _shard(tmp_path, len(asked))
        asked.append(1)
        return {"alive": True}

    monkeypatch.setattr(sealed, "ask_collector", ask)
    live = Node("gpu017", tmp_path, tmp_path / "run")
    rows = answered(live, Request("detail", job="llama", tables=("ops",)))[1]
    assert rows["ops"] == min(seals, len(asked)) * ROWS
    assert len(asked) == min(seals + 1, 3)


def test_sealed_shards_are_read_again_only_when_there_are_others(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a console asks that watches: the window moves on, and cuts what was kept."""
    opened: list[object] = []

    def counted(shards: Sequence[Shard], *rest: Any) -> Shards:
        opened.append(shards)
        return open_shards(shards, *rest)

    monkeypatch.setattr(sealed, "open_shards", counted)
    kept = SealedAnswers()

    def ask(since_ns: int, until_ns: int) -> int:
        request = Request("detail", "llama", since_ns, until_ns, tables=("ops",))
        status, rows = answered(node, request, kept)
        assert status["gaps"] == []
        return rows["ops"]

    assert ask(WALL_NS, WALL_NS + 10**11) == 3 * ROWS
    assert len(opened) == 1
    # A rank's last operation shows where it is, however old.
    assert ask(WALL_NS + 1000 * ROWS // 2, WALL_NS + 2 * 10**11) == pytest.approx(2.5 * ROWS, abs=2)
    assert len(opened) == 1
    assert ask(WALL_NS - 1, WALL_NS + 2 * 10**11) == 3 * ROWS
    assert len(opened) == 2  # what was kept began later
    assert ask(WALL_NS, WALL_NS + 10**10 - 1) == ROWS
    assert len(opened) == 3  # another moment, not a later one
    _shard(node.data, 3)
    assert ask(WALL_NS, WALL_NS + 10**11) == 4 * ROWS
    assert len(opened) == 4
    greetings = [answered(node, Request("hello"), kept)[0]["jobs"] for _ in range(2)]
    assert greetings == [{"llama": {"last_ns": ANY, "ranks": [0]}}] * 2
    assert len(opened) == 5


def test_what_could_not_be_read_is_tried_again(node: Node) -> None:
    victim = sealed_shards(node.data)[1].path
    whole = victim.read_bytes()
    victim.write_bytes(whole[: len(whole) // 2])
    kept, request = SealedAnswers(), Request("detail", job="llama", tables=("ops",))
    status, rows = answered(node, request, kept)
    assert len(status["gaps"]) == 1
    assert rows["ops"] == 2 * ROWS
    victim.write_bytes(whole)
    status, rows = answered(node, request, kept)
    assert status["gaps"] == []
    assert rows["ops"] == 3 * ROWS


def test_a_question_in_json_that_repeats_a_table_is_short(node: Node) -> None:
    line = json.dumps({"ask": "digest", "job": "llama", "tables": ["ops"] * 5_000}).encode()
    stream, sink = io.BytesIO(), Sink()
    respond(node, line + b"\n", stream)
    assert FrameDecoder(sink).feed(stream.getvalue()) is not None
    assert list(sink.rows) == ["ops"]

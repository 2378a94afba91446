"""The protocol between node and console, both directions; what each side does with the other's."""

from __future__ import annotations

import io
import json
import random
import tempfile
from pathlib import Path
from typing import IO

from oncall.evidence.incident import Incident
from oncall.fleet.endpoint.node import Node
from oncall.fleet.endpoint.serve import respond
from oncall.fleet.merge import Answers, merge
from oncall.fleet.outcome import Outcome
from oncall.node.store.answer import PARQUET
from oncall.node.store.batch import one_row
from oncall.node.store.parts import ReceivedPart, load_parts
from oncall.node.store.probe_request import parse_probe
from oncall.node.store.wire import (
    End,
    FrameDecoder,
    Part,
    Request,
    WireError,
    parse_request,
    write_error,
    write_frames,
)
from oncall.node.store.writer import LiveStore, Place

from ..mutate import mutated, mutated_json
from ..registry import file_of, target

_TARGET = {
    "here": 0,
    "node": "gpu001",
    "nic": "mlx5_0",
    "address": "10.0.0.1",
    "udp_port": 7766,
    "tcp_port": 5001,
}
_REQUESTS = [
    Request("hello"),
    Request("clock"),
    Request("digest", job="llama", since_ns=1, until_ns=2 * 10**18),
    Request("detail", job="llama", tables=("ops", "ranks"), comms=(1, 2**64 - 1), seqs=(1, 9)),
    Request("probe", probe={"do": "ping", "targets": [_TARGET, _TARGET], "count": 3}),
]


def _documents() -> list[object]:
    return [json.loads(request.line()) for request in _REQUESTS]


@target(documents=_documents)
def wire_requests(data: bytes) -> None:
    """A request as a node reads it."""
    try:
        request = parse_request(data)
        if request.ask == "probe":
            parse_probe(request.probe)
    except WireError as error:
        assert str(error).isprintable() and len(str(error)) < 2000
    else:
        # What was understood is understood again as it is sent on.
        assert parse_request(request.line()) == request


class _Nowhere:
    def part(self, table: str, rows: int) -> IO[bytes]:
        assert table.isidentifier() and rows >= 0
        return io.BytesIO()


def _answers() -> list[bytes]:
    found = []
    for frames in (
        [End({"node": "gpu017", "protocol": [1, 1], "jobs": {"llama": {"ranks": [1]}}})],
        [Part("ops", 3, b"x" * 300), Part("ranks", 1, b"y"), End({"rows": 4, "problems": ["?"]})],
    ):
        stream = io.BytesIO()
        write_frames(stream, iter(frames))
        found.append(stream.getvalue())
    stream = io.BytesIO()
    write_error(stream, "knows nothing of the job", "no-data")
    return [*found, stream.getvalue()]


@target(_answers)
def wire_answers(data: bytes) -> None:
    """An answer as a console reads it, in pieces of any size."""
    dice = random.Random(len(data))
    decoder = FrameDecoder(_Nowhere())
    try:
        while data:
            size = dice.choice((1, 7, 100, 65536))
            if decoder.feed(data[:size]) is not None:
                return
            data = data[size:]
        decoder.broken_off()
    except WireError as error:
        assert str(error).isprintable() and len(str(error)) < 2000
    finally:
        decoder.close()


# ---------------------------------------------------------------- a node that answers

_here: list[tuple[tempfile.TemporaryDirectory[str], Node]] = []


def _node() -> Node:
    """A node with a shard, made once in a process."""
    if not _here:
        folder = tempfile.TemporaryDirectory(prefix="oncall-fuzz-node-")
        store = LiveStore(Place(Path(folder.name), "gpu017"), 10**18)
        times = {"enqueued_ns": 10**18, "started_ns": 10**18 + 5, "ended_ns": 10**18 + 9}
        known = {"job": "llama", "comm": 1, "seq": 1, "rank": 0, "kind": "coll", "op": "AllReduce"}
        store.write([one_row("ops", **known, **times, done=True), one_row("jobs", job="llama")])
        store.seal(10**18 + 100)
        _here.append((folder, Node("gpu017", Path(folder.name), None)))
    return _here[0][1]


def _request_line(seed: int) -> bytes:
    """As `wire_requests`, without probes: those would ping whatever address stands in them."""
    line = mutated_json(_documents()[:4], seed)
    return line if b"probe" not in line[:30] else b"{}"


@target(make=_request_line)
def node_answers(data: bytes) -> None:
    """Whatever is asked, the answer is one that a console understands."""
    answers = io.BytesIO()
    respond(_node(), data, answers)
    decoder = FrameDecoder(_Nowhere())
    try:
        assert decoder.feed(answers.getvalue()) is not None, "an answer without its end"
    except WireError as error:
        assert error.reason != "protocol", f"the console does not understand it: {error}"


# ---------------------------------------------------------------- parts of an answer

_COLUMNS = "'llama' AS job, 1::UBIGINT AS comm, n AS seq, 0 AS rank, 'coll' AS kind"


def _parquets() -> list[bytes]:
    found = []
    with Incident.empty() as incident, tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "part.parquet")
        for select in (
            f"SELECT {_COLUMNS}, 'AllReduce' AS op, 10**15 + n AS enqueued_ns FROM range(50) t(n)",
            "SELECT 'llama' AS job, n AS rank, 'gpu017' AS node FROM range(3) t(n)",
        ):
            incident.con.execute(f"COPY ({select}) TO '{path}' ({PARQUET})")
            found.append(path.read_bytes())
    return found


def _part(seed: int) -> bytes:
    known = _corpus.setdefault("parquet", _parquets())
    return mutated(known, seed)


_corpus: dict[str, list[bytes]] = {}


_incident: list[Incident] = []


@target(make=_part)
def answer_parquet(data: bytes) -> None:
    """Parquet from a node: rows, or a part that is left out."""
    if not _incident:
        _incident.append(Incident.empty())
    con = _incident[0].con
    with file_of(data, "0.ops.parquet") as path:
        bad = load_parts(con, [ReceivedPart("gpu017", "ops", 50, path)])
    ((rows,),) = con.execute("SELECT count(*) FROM ops").fetchall()
    assert rows == (0 if bad else 50)
    con.execute("DELETE FROM ops")


@target(make=_part)
def merged_answers(data: bytes) -> None:
    """The same as a console merges it: in the incident, or a gap of that node."""
    with file_of(data, "0.ops.parquet") as path:
        parts = [ReceivedPart("gpu017", "ops", 50, path)]
        outcomes = {"gpu017": Outcome("gpu017", "ok", status={"node": "gpu017"})}
        with merge(Answers(parts, outcomes, {}), "llama") as incident:
            assert incident.con.execute("SELECT count(*) FROM ops").fetchone() is not None

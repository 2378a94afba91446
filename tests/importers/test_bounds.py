"""Every reader is bounded by one layer, which none goes around; each known attack has an end."""

from __future__ import annotations

import ast
import gzip
import json
import os
import pickle
import socket
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest

from oncall.core import room
from oncall.core.errors import BadInput, Unreadable
from oncall.evidence.incident import Incident
from oncall.importers import bounds, detect, documents, files
from oncall.importers.bounds import Bounds, Meter
from oncall.importers.detect import load
from oncall.importers.kineto import stream
from oncall.importers.logs.reading import Log
from oncall.importers.logs.recognisers.order import NEEDLES
from oncall.importers.tables import Database

INGEST = Path(bounds.__file__).parent
# The layer itself; a socket is read by the client of RAS alone, and its answer by the importer;
# standard input and what was seen of a growing log become files, of a bounded size.
LAYER = {
    *("archives.py", "bounds.py", "documents.py", "files.py", "packed.py", "tables.py"),
    *("ras/client.py", "logs/following.py"),
}
MODULES = {
    *("bz2", "csv", "gzip", "io", "json", "lzma", "mmap", "pickle", "ruamel", "shelve", "socket"),
    *("subprocess", "tarfile", "zipfile", "zlib"),
}
CALLS = {
    *("connect", "fromfile", "genfromtxt", "glob", "iterdir", "loadtxt", "memmap", "open"),
    *("read_bytes", "read_text", "rglob", "scandir", "walk"),
}


@pytest.mark.parametrize("path", sorted(INGEST.rglob("*.py")), ids=lambda path: path.stem)
def test_readers_get_at_bytes_through_the_layer_alone(path: Path) -> None:
    if path.relative_to(INGEST).as_posix() in LAYER:
        return
    assert not list(_around(ast.parse(path.read_text())))


def test_the_rule_sees_what_goes_around_the_layer() -> None:
    for source in (
        "import json",
        "from pickle import loads",
        "open(path)",
        "path.open('rb')",
        "path.read_bytes()",
        "duckdb.connect()",
        "con.execute('FROM read_parquet(?)')",
        "np.fromfile(path)",
        "os.walk(path)",
    ):
        assert list(_around(ast.parse(source))), source


def _around(tree: ast.AST):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = {one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {(node.module or "").partition(".")[0]}
        elif isinstance(node, ast.Call):
            if (name := _called(node.func)) in CALLS:
                yield name
            continue
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if any(word in node.value for word in ("read_parquet(", "read_csv(", "read_json(")):
                yield node.value
            continue
        else:
            continue
        yield from names & MODULES


def _called(function: ast.expr) -> str | None:
    """The name that is called, unless it is the layer's own."""
    if isinstance(function, ast.Name):
        return function.id if function.id == "open" else None
    of_layer = isinstance(function, ast.Attribute) and ast.unparse(function.value) == "files"
    return function.attr if isinstance(function, ast.Attribute) and not of_layer else None


# ---------------------------------------------------------------------- files


def test_what_is_no_file_is_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "socket"))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("pipe", "socket", ".", "loop", "gone", "bad\0name"):
        with pytest.raises(Unreadable):
            files.open_file(tmp_path / name)
    for device in ("/dev/zero", "/dev/null", "/dev/tty"):
        with pytest.raises(Unreadable):
            files.whole(Path(device), 1)
    listening.close()


def test_files_of_proc_have_no_size_and_an_end() -> None:
    assert files.whole(Path("/proc/self/status"), 1).startswith(b"Name:")
    with pytest.raises(Unreadable):
        files.whole(Path("/proc/self/mem"), 1)


def test_a_file_that_grows_is_read_to_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 10)
    with files.open_file(path) as file:
        path.write_bytes(b"x" * 1000)
        assert len(files._read(file, 10)) == 10


def test_a_walk_ends(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "circle").symlink_to(tmp_path)
    for name in ("a/2", "a/10", "z", ".hidden"):
        (tmp_path / name).touch()
    found = [str(path.relative_to(tmp_path)) for path in files.walk(tmp_path)]
    assert found == ["z", "a/10", "a/2", "a/b/circle"]
    with pytest.raises(BadInput, match="more than 4 files"):
        list(files.walk(tmp_path, Bounds(files=4)))


def test_pipes_given_by_a_pattern_are_passed_over_with_a_note(tmp_path: Path) -> None:
    dump = {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": []}
    for rank in range(2):
        (tmp_path / f"fr_trace_rank_{rank}").write_bytes(pickle.dumps(dump))
        os.mkfifo(tmp_path / f"fr_trace_rank_{rank}.pipe")
    with Incident.empty() as incident:
        load(sorted(tmp_path.glob("fr_trace_rank_*")), incident)
        found = incident.con.execute(
            "SELECT path, problem FROM recordings ORDER BY path"
        ).fetchall()
    assert [problem for _, problem in found] == [
        None,
        "a named pipe, neither a file nor a folder",
        None,
        "a named pipe, neither a file nor a folder",
    ]


# --------------------------------------------------------------------- stream


def test_a_bomb_is_stopped_where_its_size_no_longer_explains_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(bytes(10**6)))
    tight = Bounds(freely_expanded_bytes=1000, expansion=10)
    with files.Stream(path, tight) as unpacking, pytest.raises(Unreadable, match="unpacks to more"):
        while unpacking.read(1000):
            pass


def test_time_is_explained_by_bytes() -> None:
    meter = Meter(bounds=Bounds(grace_s=0.0, least_bytes_per_cpu_s=10**12))
    sum(range(10**5))
    with pytest.raises(Unreadable, match="took"):
        meter.take(1)


def test_no_number_of_bytes_explains_more_than_one_file_may_take() -> None:
    meter = Meter(bounds=Bounds(part_cpu_s=0.0))
    with pytest.raises(Unreadable, match="more than one file may take"):
        meter.take(1 << 30)


def test_all_files_of_a_job_share_a_time() -> None:
    meter = Meter()
    of_one_job = bounds.of_one_job(Bounds(all_cpu_s=0.0))
    with of_one_job, pytest.raises(Unreadable, match="all files together"):
        meter.take(1)
    meter.take(1)


def test_each_line_of_a_log_is_looked_at_before_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text("RuntimeError: x\n" * 10_000)
    meters: list[Meter] = []

    def checked(meter: Meter) -> None:
        meters.append(meter)
        if len(meters) > 100:
            raise Unreadable("took too long")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Meter, "check_time", checked)
        log = Log(path, NEEDLES)
        given = list(log.candidates())
    assert 90 < len(given) < 100
    assert log.problem == "took too long"


def test_lines_of_what_is_read_whole_are_looked_at_as_well() -> None:
    with pytest.raises(Unreadable, match="more than one file may take"):
        list(bounds.metered(["x"] * 10, Bounds(part_cpu_s=0.0)))


def test_recognition_is_metered_as_reading_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file whose recognition would not end is listed; what lies beside it is read."""
    (tmp_path / "slow.txt").write_text("slow")
    (tmp_path / "job.log").write_text("[rank0]: RuntimeError: x\n")
    spent_s = [0.0]
    monkeypatch.setattr(bounds.time, "thread_time", lambda: spent_s[0])

    class Slow:
        KIND = "slow"

        @staticmethod
        def recognises(path: Path, head: bytes) -> bool:  # noqa: ARG004 - by content
            spent_s[0] += 6.0 * (head == b"slow")
            return False

    table = list(detect.importers())
    monkeypatch.setattr(detect, "importers", lambda: iter([Slow, *table]))
    with Incident.empty() as incident:
        load([tmp_path], incident)
        found = incident.con.execute(
            "SELECT problem FROM recordings WHERE path LIKE '%slow.txt'"
        ).fetchall()
    assert "took 6 s of CPU" in found[0][0]
    with Incident.empty() as incident, pytest.raises(BadInput, match="took 6 s of CPU"):
        load([tmp_path / "slow.txt"], incident)


@pytest.mark.parametrize(
    "text", ["A" * 2**17, '{"' * 2000, '{"' + '"log": "' * 2000], ids=["letters", "braces", "logs"]
)
def test_what_recognition_never_finished_is_no_recording(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(text.encode()))
    with Incident.empty() as incident, pytest.raises(BadInput, match="not a recording"):
        load([path], incident)


def test_what_is_kept_of_a_stream_is_bounded_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = Meter()
    meter.take(1 << 20)
    monkeypatch.setattr(bounds, "held_bytes", lambda: 1 << 50)
    with pytest.raises(Unreadable, match="takes"):
        meter.take(1 << 24)


def test_a_large_value_of_a_trace_is_decoded_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work in proportion to size: decoding a value anew for every chunk would be quadratic."""
    monkeypatch.setattr(stream, "_CHUNK_BYTES", 1 << 14)
    path = tmp_path / "trace.json"
    value = json.dumps([[n] for n in range(40_000)])
    path.write_text(f'{{"schemaVersion": 1, "x": {value}, "traceEvents": []}}')
    decoded = []
    at = documents.JsonValues.at

    def counting(self, text, start):
        decoded.append(len(text) - start)
        return at(self, text, start)

    monkeypatch.setattr(documents.JsonValues, "at", counting)
    trace = stream.TraceStream(path)
    assert list(trace) == []
    assert len(trace.header["x"]) == 40_000
    assert sum(decoded) < 4 * path.stat().st_size


def test_events_that_are_damaged_within_one_another_are_passed_once(tmp_path: Path) -> None:
    depth, width = 300, 20_000
    inner = '{"ph": [' * depth + "1, " * width + "damage" + "]}" * depth
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [' + inner + ', {"ph": "X", "ts": 1}]}')
    trace = stream.TraceStream(path)
    assert [event.ts for event in trace] == [1]
    assert len(trace._skipped) == 1


# ------------------------------------------------------------------ documents


def test_a_document_is_bounded_by_the_memory_that_it_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ras.txt"
    with path.open("wb") as file:
        file.truncate(64 << 20)  # sparse: takes no space
    with pytest.raises(Unreadable, match="larger than"):
        files.whole(path, 1, Bounds(document_bytes=1 << 20))
    monkeypatch.setattr(room, "in_hand_bytes", lambda: 1 << 30)
    with pytest.raises(Unreadable, match="may take 4 GiB of memory, more than the 512 MiB"):
        files.whole(path, 64)


def test_json_is_bounded_by_what_is_in_it() -> None:
    tight = Bounds(part_memory_bytes=32 << 20)
    assert documents.parse_json(b'"' + b"x" * (1 << 20) + b'"', tight)
    with pytest.raises(Unreadable, match="of JSON may take"):
        documents.parse_json(b"[" + b"[]," * (1 << 18) + b"0]", tight)


@pytest.mark.parametrize(
    "text", ["[" * 10**5, '{"a":' * 10**5, "9" * 5000, "\ud800", '{"a" 1}', "[1,]"]
)
def test_damaged_json_has_one_kind_of_end(text: str) -> None:
    with pytest.raises(Unreadable):
        documents.parse_json(text.encode("utf-8", "surrogatepass"))


def _doubled(depth: int, inner: object = 1) -> object:
    """A tuple that holds itself twice, so deep: a few bytes, and 2**depth leaves."""
    for _ in range(depth):
        inner = (inner, inner)
    return inner


ENTRY = {
    "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": 1, "p2p_seq_id": 0,
    "op_id": 1, "profiling_name": "nccl:all_reduce", "time_created_ns": 1, "input_sizes": [[2]],
    "input_dtypes": ["Float"], "output_sizes": [[2]], "state": "scheduled",
    "time_discovered_completed_ns": None, "retired": False, "is_p2p": False,
    "frames": [{"name": "f", "filename": "f.py", "line": 1}], "duration_ms": 1.0,
}  # fmt: skip


@pytest.mark.parametrize("field", ENTRY)
@pytest.mark.parametrize("listed", [False, True])
def test_what_holds_itself_many_times_has_an_end_in_every_field(
    tmp_path: Path, field: str, listed: bool
) -> None:
    deep = [_doubled(60)] if listed else _doubled(60)
    path = tmp_path / "rank_0"
    path.write_bytes(pickle.dumps({"version": "2.10", "entries": [ENTRY | {field: deep}]}))
    # A flag that is a list counts as set, and sizes that nobody needs are not looked at.
    with Incident.empty() as incident, suppress(BadInput):
        load([path], incident)
        assert incident.rows("ops") == 1


@pytest.mark.parametrize("place", ["name", "desc", "ranks"])
def test_and_in_the_groups(tmp_path: Path, place: str) -> None:
    group = {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"} | {place: _doubled(60)}
    path = tmp_path / "rank_0"
    path.write_bytes(pickle.dumps({"pg_config": {"0": group}, "entries": [ENTRY]}))
    with Incident.empty() as incident, pytest.raises(BadInput, match="rank_0"):
        load([path], incident)


def test_shared_frames_are_written_once(tmp_path: Path) -> None:
    frames = [{"name": "f" * 10**6, "filename": "f.py", "line": 1}] * 10**5
    entries = [ENTRY | {"collective_seq_id": n, "frames": frames} for n in range(200)]
    path = tmp_path / "rank_0"
    path.write_bytes(pickle.dumps({"version": "2.10", "entries": entries}))
    with Incident.empty() as incident:
        load([path], incident)
        found = incident.con.execute("SELECT max(len(frames)), max(len(frames[1])) FROM stacks")
        assert found.fetchall() == [(256, 510)]


# --------------------------------------------------------------------- tables


def test_parquet_of_many_rows_in_few_bytes_is_refused_by_its_count(tmp_path: Path) -> None:
    path = tmp_path / "switch_ports.parquet"
    with duckdb.connect() as con:
        con.execute(
            f"COPY (SELECT 'SW1' AS switch, 1 AS port, 1 AS at_ns FROM range(6000000)) TO '{path}'"
        )
    with Incident.empty() as incident, pytest.raises(BadInput, match="6,000,000 rows, more than"):
        load([path], incident)


def test_rows_of_a_text_beyond_the_bound_are_left_out_and_stated(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,2\n" * 100)
    with Database(Bounds(part_rows=10)) as db:
        assert db.load("t", path) == "no more than the first 10 rows are read"
        assert db.con.execute("SELECT count(*) FROM t").fetchall() == [(10,)]


def test_a_query_is_interrupted_when_its_file_does_not_explain_its_time(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n")
    with Database(Bounds(grace_s=0.01)) as db:
        with pytest.raises(Unreadable, match="took longer"), db.deadline(path):
            db.con.execute(
                "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
            )
        assert db.con.execute("SELECT 1").fetchall() == [(1,)]


def test_a_gzipped_table_is_unpacked_as_far_as_the_bounds_go(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 10**6))
    tight = Bounds(freely_expanded_bytes=2 << 20, expansion=1)
    with Database(tight) as db:
        assert "unpacks to more" in str(db.load("t", path))


def test_rows_of_an_incident_are_bounded_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "in_hand_bytes", lambda: 1 << 20)
    with pytest.raises(BadInput, match="give fewer files"):
        bounds.check_rows(10**6)


def test_what_is_in_hand_is_reported_by_the_tightest_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {
        "/proc/meminfo": "MemTotal: 100 kB\nMemAvailable: 8000000 kB\n",
        "/proc/self/cgroup": "0::/job\n",
        "/sys/fs/cgroup/job/memory.max": "3000000\n",
        "/sys/fs/cgroup/job/memory.current": "2500000\n",
        "/sys/fs/cgroup/job/memory.stat": "anon 5\ninactive_file 100000\n",
    }
    now = [0.0]
    monkeypatch.setattr(room, "_text", lambda path: columns.get(str(path), ""))
    monkeypatch.setattr(room.time, "monotonic", lambda: now[0])
    room._in_hand_bytes.cache_clear()
    assert room.in_hand_bytes() == 600_000
    columns["/sys/fs/cgroup/job/memory.max"] = "max\n"
    assert room.in_hand_bytes() == 600_000, "files are read often, and memory changes slowly"
    now[0] += 0.2
    assert room.in_hand_bytes() == 8_000_000 << 10
    room._in_hand_bytes.cache_clear()

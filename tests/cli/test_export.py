"""An incident for other programs: Perfetto's file, Parquet, SQL."""

from __future__ import annotations

import errno
import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

from oncall.cli.export import _whole
from oncall.cli.simulate import simulate
from oncall.core.errors import of_system

from ..command import oncall

SCENARIO = """\
tp: 2
pp: 1
duration: 30 s
gpus_per_node: 4
measured: true
clock_offset: 10 ms
faults:
  - {fault: H1, rank: 5, at: 10 s}
"""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stopped")
    (folder / "stop.yaml").write_text(SCENARIO, encoding="utf-8")
    simulate(folder / "stop.yaml", folder)
    return folder / "evidence.oncall"


@pytest.fixture(scope="module")
def document(stopped: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("trace") / "x.json.gz"
    done = oncall("export", "perfetto", stopped, "-o", path)
    assert done.returncode == 0 and str(path) in done.stdout
    content: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return content


def of_process(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The events of the process whose name begins so."""
    (pid,) = (
        event["pid"]
        for event in document["traceEvents"]
        if event["name"] == "process_name" and event["args"]["name"].startswith(name)
    )
    return [one for one in document["traceEvents"] if one["pid"] == pid and one["ph"] != "M"]


def test_a_full_disk_is_reported_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError) as refused, _whole(tmp_path / "x.json.gz"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert str(of_system(refused.value)) == f"{tmp_path / 'x.json.gz'}: No space left on device"
    assert not list(tmp_path.iterdir())


def test_the_verdict_and_its_steps_come_first(document: dict[str, Any]) -> None:
    (verdict,) = (one for one in of_process(document, "job") if "verdict" in one["args"])
    assert "rank 5" in verdict["name"] and verdict["args"]["verdict"] == "hang.H1"
    assert "step 1" in verdict["args"] and "next 1" in verdict["args"]
    order = {
        event["pid"]: event["args"]["sort_index"]
        for event in document["traceEvents"]
        if event["name"] == "process_sort_index"
    }
    culprit = of_process(document, "rank 5")[0]["pid"]
    assert sorted(order, key=order.__getitem__)[:2] == [verdict["pid"], culprit]


def test_a_rank_shows_calls_waits_and_its_gpu_and_a_host_its_devices(
    document: dict[str, Any],
) -> None:
    names = {event["name"] for event in of_process(document, "rank 4")}
    assert any(name.startswith("waits in AllReduce") for name in names)
    assert any(name.endswith("SM clock [MHz]") for name in names)
    assert any("not finished" in name for name in names)
    assert any("CPU busy" in event["name"] for event in of_process(document, "gpu001"))
    assert any(one["name"].startswith("awaited by") for one in of_process(document, "rank 5"))


def test_each_reading_is_there_once(document: dict[str, Any]) -> None:
    """However many ranks share the device."""
    readings = [
        (event["pid"], event["name"], event["ts"])
        for event in document["traceEvents"]
        if event["ph"] == "C"
    ]
    assert any("sends [bytes/s]" in name for _, name, _ in readings)
    assert len(readings) == len(set(readings))


def test_arrows_go_from_who_waits_to_the_culprit(document: dict[str, Any]) -> None:
    arrows = [event for event in document["traceEvents"] if event["ph"] in "sf"]
    culprit = of_process(document, "rank 5")[0]["pid"]
    assert arrows and {one["pid"] for one in arrows if one["ph"] == "f"} >= {culprit}
    slices = [event for event in document["traceEvents"] if event["ph"] == "X"]
    for arrow in arrows:
        assert any(
            (one["pid"], one["tid"]) == (arrow["pid"], arrow["tid"])
            and one["ts"] <= arrow["ts"] <= one["ts"] + one["dur"]
            for one in slices
        )


def test_the_clocks_are_aligned_and_it_is_said_how_closely(document: dict[str, Any]) -> None:
    """Both ends of a collective end together, though the hosts' clocks are 10 ms apart."""
    (recording,) = (one for one in of_process(document, "job") if "clocks" in one["args"])
    assert recording["args"]["clocks"].startswith("2 hosts on one clock, to within ")
    ends: dict[Any, list[float]] = {}
    for event in document["traceEvents"]:
        if event["ph"] == "X" and event["args"].get("seq") == 3 and event["dur"]:
            at = ends.setdefault((event["args"]["communicator"], event["name"]), [])
            at.append(event["ts"] + event["dur"])
    assert any(len(at) > 2 for at in ends.values())
    assert all(max(at) - min(at) < 2_000 for at in ends.values())


def test_perfettos_own_format_shows_the_same(
    stopped: Path, document: dict[str, Any], tmp_path: Path
) -> None:
    """Decoded by the format's own classes: the same slices, readings, arrows and names."""
    path = tmp_path / "x.pftrace"
    done = oncall("export", "perfetto", stopped, "-o", path)
    assert done.returncode == 0 and str(path) in done.stdout
    shown = Decoded(path)
    origin_ns = document["otherData"]["origin_unix_ns"]
    json_names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in document["traceEvents"]
        if event["name"] == "thread_name"
    }
    slices, readings, arrows = [], [], []
    for event in document["traceEvents"]:
        at_ns = origin_ns + round(event.get("ts", 0) * 1000)
        if event["ph"] in "Xi":
            track = json_names[event["pid"], event["tid"]]
            until_ns = at_ns + round(event["dur"] * 1000) if "dur" in event else None
            about = {name: one for name, one in event["args"].items() if one is not None}
            slices.append((track, event["name"], at_ns, until_ns, about))
        elif event["ph"] == "C":
            readings.append((event["name"], at_ns, *event["args"].values()))
        elif event["ph"] in "sf":
            track = json_names[event["pid"], event["tid"]]
            arrows.append((event["ph"], event["id"], track, at_ns))
    assert (shown.slices, shown.readings, shown.arrows) == (slices, readings, arrows)
    processes = {
        event["args"]["name"]
        for event in document["traceEvents"]
        if event["name"] == "process_name"
    }
    first, second = sorted(shown.processes, key=lambda one: one.sibling_order_rank)[:2]
    assert {one.process.process_name for one in shown.processes} == processes
    assert first.process.process_name == "job" and "rank 5" in second.process.process_name
    assert shown.clocks == {1: origin_ns, 6: origin_ns}


class Decoded:
    """A file in Perfetto's own format, its names looked up as its viewer does."""

    def __init__(self, path: Path) -> None:
        whole = perfetto_trace_pb2.Trace.FromString(path.read_bytes())
        self.slices: list[Any] = []
        self.readings: list[Any] = []
        self.arrows: list[Any] = []
        self.clocks: dict[int, int] = {}
        self._tracks: dict[int, Any] = {}
        self._names: dict[int, str] = {}
        self._annotations: dict[int, str] = {}
        for packet in whole.packet:
            for one in packet.interned_data.event_names:
                self._names[one.iid] = one.name
            for one in packet.interned_data.debug_annotation_names:
                self._annotations[one.iid] = one.name
            if packet.HasField("track_descriptor"):
                described = packet.track_descriptor
                assert not described.parent_uuid or described.parent_uuid in self._tracks
                self._tracks[described.uuid] = described
            self.clocks |= {one.clock_id: one.timestamp for one in packet.clock_snapshot.clocks}
            if packet.HasField("track_event"):
                assert packet.sequence_flags == packet.SEQ_NEEDS_INCREMENTAL_STATE
                self._event(packet.timestamp, packet.track_event)

    @property
    def processes(self) -> list[Any]:
        return [one for one in self._tracks.values() if one.HasField("process")]

    def _event(self, at_ns: int, event: Any) -> None:
        track = self._tracks[event.track_uuid]
        if event.legacy_event.phase:
            phase = chr(event.legacy_event.phase)
            self.arrows.append((phase, event.legacy_event.unscoped_id, track.name, at_ns))
        elif event.type == event.TYPE_COUNTER:
            assert track.HasField("counter")
            self.readings.append((track.name, at_ns, event.double_counter_value))
        elif event.type == event.TYPE_SLICE_END:
            # The writer ends what it began last, so that the viewer need not match them.
            name, began, about = self._open.pop(event.track_uuid)
            self.slices.append((track.name, name, began, at_ns, about))
        else:
            name = self._names[event.name_iid]
            about = {self._annotations[one.name_iid]: plain(one) for one in event.debug_annotations}
            if event.type == event.TYPE_INSTANT:
                self.slices.append((track.name, name, at_ns, None, about))
            else:
                self._open = {event.track_uuid: (name, at_ns, about)}


def plain(annotation: Any) -> Any:
    """A value of an annotation as JSON has it."""
    if annotation.array_values:
        return [plain(one) for one in annotation.array_values]
    if annotation.dict_entries:
        return {one.name: plain(one) for one in annotation.dict_entries}
    kind = annotation.WhichOneof("value")
    return [] if kind is None else getattr(annotation, kind)


def test_without_the_package_it_is_said_what_brings_it(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "perfetto", None)
    monkeypatch.delitem(sys.modules, "oncall.render.perfetto.as_protobuf", raising=False)
    for name in [one for one in sys.modules if one.startswith("perfetto.")]:
        monkeypatch.delitem(sys.modules, name)
    done = oncall("export", "perfetto", stopped, "-o", tmp_path / "x.pftrace")
    assert done.returncode == 2 and "pip install 'oncall-console[perfetto]'" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_large_json_names_what_is_smaller(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncall.cli.export._LARGE_JSON_BYTES", 1000)
    done = oncall("export", "perfetto", stopped, "-o", tmp_path / "x.json.gz")
    assert done.returncode == 0 and "-o evidence.oncall.pftrace" in done.stderr


def test_tables_keep_units_and_meanings(stopped: Path, tmp_path: Path) -> None:
    done = oncall("export", "parquet", stopped, tmp_path / "tables")
    assert done.returncode == 0 and "front.parquet" in done.stdout
    ops = tmp_path / "tables" / "ops.parquet"
    with duckdb.connect() as con:
        ((rows,),) = con.execute(f"SELECT count(*) FROM '{ops}'").fetchall()
        ((text,),) = con.execute(
            f"SELECT decode(value) FROM parquet_kv_metadata('{ops}') WHERE decode(key) = 'oncall'"
        ).fetchall()
    assert rows > 100
    assert json.loads(text)["columns"]["started_ns"]["unit"] == "ns"
    again = oncall("export", "parquet", stopped, tmp_path / "tables")
    assert again.returncode == 2 and "not empty" in again.stderr


def test_sql_reads_tables_and_relations(stopped: Path) -> None:
    query = "SELECT rank, missing FROM front ORDER BY rank LIMIT 1"
    assert oncall("sql", stopped, query, "--format", "json").stdout == (
        '{"rank": 0, "missing": [4]}\n'
    )
    assert oncall("sql", stopped, query, "--format", "csv").stdout == "rank,missing\n0,[4]\n"
    assert "│" in oncall("sql", stopped, query).stdout


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT * FROM opz", "did you mean `ops`?)\n  SELECT * FROM opz\n                ^^^"),
        ("SELECT rnk FROM ops", "no column `rnk` in `ops`"),
        ("SELECT * FROM read_csv('/etc/passwd')", "a query may not read from `read_csv`"),
        ("DROP TABLE ops", "a query is one SELECT"),
        ("SELECT * FROM ops WHERE rank = $rank", "write a value in place of the parameter"),
    ],
)
def test_a_query_that_is_wrong_or_reaches_out_is_refused(
    stopped: Path, query: str, said: str
) -> None:
    done = oncall("sql", stopped, query)
    assert done.returncode == 2 and said in done.stderr and done.stdout == ""


def test_what_was_not_recorded_is_said(stopped: Path) -> None:
    done = oncall("sql", stopped, "SELECT count(*) AS n FROM log_events", "--format", "csv")
    assert (done.returncode, done.stdout) == (0, "n\n0\n")
    assert "`log_events` holds no rows here" in done.stderr


def test_what_a_log_holds_steers_no_terminal(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("RuntimeError: \x1b]0;mine\x07 \x9b2J failed\n")
    for kind in ("csv", "json", "text"):
        query = "SELECT text FROM log_events"
        done = oncall("sql", tmp_path / "job.log", query, "--format", kind)
        assert "failed" in done.stdout
        assert not {"\x1b", "\x07", "\x9b"} & set(done.stdout)


def test_a_trace_that_is_not_written_whole_is_not_there(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("oncall.views.incident_tracks.arrows", full)
    done = oncall("export", "perfetto", stopped, "-o", tmp_path / "x.json")
    assert done.returncode == 2 and "No space left" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_evidence_without_times_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    done = oncall("export", "perfetto", tmp_path / "job.log", "-o", tmp_path / "x.json")
    assert done.returncode == 2 and "no times" in done.stderr
    assert not (tmp_path / "x.json").exists()

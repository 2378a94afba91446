"""Laws of profiler traces: what was written comes back; of a torn one, what precedes the tear."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.core.errors import BadInput
from oncall.evidence.incident import Incident
from oncall.importers.detect import load
from oncall.importers.kineto import stream
from oncall.importers.kineto.reading import read_file
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose
from oncall_lab.pipeline import PipelineFault, PipelineScenario, simulate_pipeline

BASE_NS = 1_759_968_000_123_456_789
GROUPS = {"0": ("default_pg", [0, 1, 2, 3]), "5": ("TENSOR_MODEL_PARALLEL_GROUP", [2, 3])}
OPERATIONS = {
    "allreduce": "AllReduce",
    "_allgather_base": "AllGather",
    "reduce_scatter_tensor_coalesced": "ReduceScatter",
    "broadcast": "Broadcast",
    "all_to_allv": "AllToAll",
    "send": "Send",
    "recv": "Recv",
}
BYTES = {"BFloat16": 2, "Float": 4, "Byte": 1}


@dataclass(frozen=True)
class Made:
    """A call of rank 2, as it is drawn; times in ns since the one before."""

    op: str
    group: str
    dtype: str
    elements: int
    after_ns: int
    queued_ns: int
    ran_ns: int
    linked: bool


MADE = st.builds(
    Made,
    op=st.sampled_from(sorted(OPERATIONS)),
    group=st.sampled_from(sorted(GROUPS)),
    dtype=st.sampled_from(sorted(BYTES)),
    elements=st.integers(1, 1 << 40),
    after_ns=st.integers(5_000, 10**12),
    queued_ns=st.integers(0, 10**9),
    ran_ns=st.integers(1, 10**10),
    linked=st.booleans(),
)


def kineto_event(category: str, name: str, at_ns: int, for_ns: int, said: dict[str, Any]) -> str:
    """An event in the layout of libkineto, times in microseconds with three digits."""
    body = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in said.items())
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": {json.dumps(name)}, "pid": 7, '
        f'"tid": 1,\n    "ts": {at_ns // 1000}.{at_ns % 1000:03}, '
        f'"dur": {for_ns // 1000}.{for_ns % 1000:03},\n    "args": {{\n      {body}\n    }}\n  }},'
    )


def kineto_text(
    events: Sequence[str], rank: int, groups: dict[str, tuple[str, list[int]]], world_size: int
) -> str:
    columns = {
        "backend": "nccl",
        "rank": rank,
        "world_size": world_size,
        "pg_config": [
            {"pg_name": name, "pg_desc": text, "pg_size": len(members), "ranks": members}
            for name, (text, members) in groups.items()
        ],
    }
    return "\n".join(
        (
            ' {\n  "schemaVersion": 1,\n  "deviceProperties": [{"id": 0, "name": "H100 é"}],',
            f'  "distributedInfo": {json.dumps(columns)},',
            f'  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": {BASE_NS},\n  "traceEvents": [',
            *events,
            '  {\n    "ph": "i", "s": "g", "name": "Record Window End", "ts": 1.000\n  }\n  ],'
            '"traceName": "x" }',
        )
    )


def call_event(number: int, at_ns: int, made: Made, seq: int | None) -> str:
    text, members = GROUPS[made.group]
    said: dict[str, Any] = {
        "External id": number,
        "Collective name": made.op,
        "dtype": made.dtype,
        "In msg nelems": made.elements,
        "Out msg nelems": made.elements,
        "Group size": len(members),
        "Process Group Name": made.group,
        "Process Group Description": text,
        "Process Group Ranks": str(members),
    }
    if seq is not None:
        said["Seq"] = seq
    if made.op in ("send", "recv"):
        said["Dst Rank" if made.op == "send" else "Src Rank"] = 3
    return kineto_event("cpu_op", "record_param_comms", at_ns, 4_000, said)


def written(made: Sequence[Made]) -> tuple[str, list[tuple[Any, ...]]]:
    """A trace of rank 2, and the rows that it should give, in the order of their calls."""
    events, expected = [], []
    seq: dict[tuple[str, bool], int] = defaultdict(int)
    at_ns = 0
    for number, one in enumerate(made, 1):
        at_ns += one.after_ns
        p2p = one.op in ("send", "recv")
        seq[one.group, p2p] += 1
        stated_number = None if p2p else 1000 + seq[one.group, False]
        events.append(call_event(number, at_ns, one, stated_number))
        started_ns = at_ns + one.queued_ns
        device: dict[str, Any] = {"correlation": number, "stream": 13}
        if one.linked:
            device["External id"] = number
        launched = {"correlation": number}
        events.append(kineto_event("cuda_runtime", "cudaLaunchKernel", at_ns + 3_000, 9, launched))
        events.append(kineto_event("cpu_op", "aten::empty", at_ns + 10, 5, {"External id": -1}))
        name = "ncclDevKernel_Generic_4"
        events.append(kineto_event("kernel", name, started_ns, one.ran_ns, device))
        expected.append(
            (
                "p2p" if p2p else "coll",
                seq[one.group, True] if p2p else stated_number,
                OPERATIONS[one.op],
                one.dtype,
                one.elements,
                one.elements * BYTES[one.dtype],
                3 if p2p else None,
                BASE_NS + at_ns,
                BASE_NS + started_ns,
                BASE_NS + started_ns + one.ran_ns,
                len(GROUPS[one.group][1]),
            )
        )
    return kineto_text(events, 2, GROUPS, 4), expected


def read_back(content: bytes) -> tuple[list[tuple[Any, ...]], str | None]:
    """The operations of a file with this content in the order of their calls, and its problem."""
    with TemporaryDirectory() as folder, Incident.empty() as incident:
        path = Path(folder, "host_17.pt.trace.json")
        path.write_bytes(content)
        load([path], incident)
        found = incident.con.execute(
            "SELECT kind, seq, op, dtype, count, bytes, peer, enqueued_ns, started_ns, ended_ns, "
            "(SELECT any_value(size) FROM comms c WHERE c.comm = o.comm) FROM ops o "
            "WHERE rank = 2 AND done ORDER BY enqueued_ns"
        ).fetchall()
        ((problem,),) = incident.con.execute("SELECT problem FROM recordings").fetchall()
    return found, problem


@settings(max_examples=15, deadline=None)
@given(
    made=st.lists(MADE, min_size=1, max_size=12),
    packed=st.booleans(),
    chunk_bytes=st.sampled_from([61, 997, 1 << 20]),
)
def test_what_was_written_comes_back(made: list[Made], packed: bool, chunk_bytes: int) -> None:
    text, expected = written(made)
    content = gzip.compress(text.encode()) if packed else text.encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "_CHUNK_BYTES", chunk_bytes)
        assert read_back(content) == (expected, None)


@settings(max_examples=15, deadline=None)
@given(
    made=st.lists(MADE, min_size=2, max_size=8),
    share=st.floats(0.01, 0.99),
    packed=st.booleans(),
)
def test_of_a_torn_trace_what_precedes_the_tear_comes_back(
    made: list[Made], share: float, packed: bool
) -> None:
    text, expected = written(made)
    content = gzip.compress(text.encode()) if packed else text.encode()
    try:
        found, problem = read_back(content[: int(len(content) * share)])
    except BadInput as error:
        assert str(error)
        return
    called = [row[:8] for row in found]
    assert called == [row[:8] for row in expected[: len(called)]]
    # A tear behind the last event, as in the checksum of gzip, loses nothing.
    assert re.search("(torn|stopped) after", problem) if problem else len(called) == len(expected)


@settings(max_examples=25, deadline=None)
@given(
    made=st.lists(MADE, min_size=1, max_size=3),
    damage=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=9)), min_size=1, max_size=4),
)
def test_damage_anywhere_is_reported_not_suffered(
    made: list[Made], damage: list[tuple[float, bytes]]
) -> None:
    text, _ = written(made)
    content = bytearray(text.encode())
    for share, junk in damage:
        at = int(share * len(content))
        content[at : at + len(junk)] = junk
    with TemporaryDirectory() as folder:
        path = Path(folder, "trace_rank2.json")
        path.write_bytes(content)
        reading = read_file(path)
    assert reading.problem is not None or len(reading.operations) <= len(made)


NAMES = {"forward": "forward-compute", "backward": "backward-compute", "optimizer": "optimizer"} | {
    f"{way}_{end}": f"{way}-{end}" for way in ("forward", "backward") for end in ("send", "recv")
}


def pipeline_trace(tasks: Sequence[tuple[Any, ...]], rank: int, first_ns: int) -> str:
    """Annotations of tasks (iteration, task, peer, start, end); the host is ahead of the device."""
    pipe = {"9": ("PIPELINE_MODEL_PARALLEL_GROUP", [0, 1, 2, 3])}
    events = []
    steps: dict[int, list[int]] = defaultdict(list)
    for number, (iteration, task, peer, start_ns, end_ns) in enumerate(tasks, 10):
        at_ns, until_ns = start_ns - first_ns, end_ns - first_ns
        steps[iteration] += at_ns, until_ns
        name, link = NAMES[task], {"External id": number}
        events.append(kineto_event("user_annotation", name, at_ns, 20_000, link))
        span_ns = until_ns - at_ns
        if peer is None:
            # On two streams, each wider by the nanosecond that Kineto adds on each side.
            for begin, length in ((at_ns, span_ns // 2), (at_ns + span_ns // 3, 0)):
                length = length or at_ns + span_ns - begin
                events.append(
                    kineto_event("gpu_user_annotation", name, begin - 1, length + 2, link)
                )
            continue
        said = {
            "External id": number + 1_000_000,
            "Collective name": task.rpartition("_")[2],
            "dtype": "BFloat16",
            "In msg nelems": 4096,
            "Group size": 4,
            "Process Group Name": "9",
            "Dst Rank" if task.endswith("send") else "Src Rank": peer,
        }
        events.append(kineto_event("cpu_op", "record_param_comms", at_ns + 1_000, 9_000, said))
        device = {"External id": number + 1_000_000, "stream": 21}
        events.append(kineto_event("kernel", "ncclDevKernel_SendRecv", at_ns, span_ns, device))
    for iteration, ends in steps.items():
        length_ns = max(ends) - min(ends) + 1
        name = f"ProfilerStep#{iteration}"
        events.append(kineto_event("user_annotation", name, min(ends), length_ns, {}))
    return kineto_text(events, rank, pipe, 4)


def test_a_delayed_task_is_found_in_traces_of_its_pipeline(tmp_path: Path) -> None:
    fault = PipelineFault(kind="delay", rank=2, iteration=5, micro_batch=3)
    scenario = PipelineScenario(
        tp=1, pp=4, dp=1, iterations=8, micro_batches=6, recorder="tasks", faults=(fault,)
    )
    simulated, _ = simulate_pipeline(scenario)
    with simulated:
        rows = simulated.con.execute(
            "SELECT rank, iteration, task, peer, started_ns, ended_ns, stage, micro_batch "
            "FROM stage_tasks WHERE list_contains(?, task) ORDER BY rank, started_ns, ended_ns",
            [list(NAMES)],
        ).fetchall()
    first_ns = min(row[4] for row in rows) - 10_000
    for rank in range(4):
        tasks = [row[1:6] for row in rows if row[0] == rank]
        text = pipeline_trace(tasks, rank, first_ns)
        (tmp_path / f"rank{rank}.json").write_text(text)
    with Incident.empty() as incident:
        load([tmp_path], incident)
        incident.provide(["stage_work"])
        found = incident.con.execute(
            "SELECT rank, iteration, task, stage, micro_batch FROM stage_work "
            "WHERE task IN ('forward', 'backward') ORDER BY ALL"
        ).fetchall()
        findings = diagnose(incident, load_rulebooks([shipped_folder()])).findings
    expected = [(row[0], row[1], row[2], row[6], row[7]) for row in rows]
    assert found == sorted(row for row in expected if row[2] in ("forward", "backward"))
    assert [finding.verdict for finding in findings] == ["STAGE_SLOW"]
    assert {(blamed.where["rank"], blamed.where["stage"]) for blamed in findings[0].blame} == {
        (2, 2)
    }


SAID = st.one_of(st.none(), st.integers(-5, 1 << 60), st.text(max_size=9), st.lists(st.integers()))
EVENTS = st.fixed_dictionaries(
    {"ph": st.sampled_from("XMi"), "name": st.text(max_size=40)},
    optional={
        "cat": st.sampled_from(["cpu_op", "kernel", "python_function"]),
        "ts": st.integers(0, 1 << 60),
        "tid": st.one_of(st.integers(0, 9), st.just("stream 7")),
        "args": st.one_of(
            st.dictionaries(st.sampled_from(["External id", "stream", "Seq", "other"]), SAID),
            st.integers(),  # no profiler writes that
        ),
    },
)


@given(st.lists(EVENTS, max_size=30), st.sampled_from(["", '{"ph": "X", "name": "C:\\x"}, ']))
def test_events_are_the_same_together_and_one_by_one(
    events: list[dict[str, Any]], damaged: str
) -> None:
    class OneByOne(stream.TraceStream):
        def _together(self) -> tuple[()]:
            return ()

    text = f'{{"traceEvents": [{damaged}{",".join(map(json.dumps, events))}], "traceName": "x"}}'
    with TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        path.write_text(text)
        both = [kind(path) for kind in (stream.TraceStream, OneByOne)]
        together, one_by_one = (list(map(repr, one)) for one in both)
    assert together == one_by_one
    assert len({(one.events, one.strange, one.problem) for one in both}) == 1
    assert damaged or both[0].events == len(events)

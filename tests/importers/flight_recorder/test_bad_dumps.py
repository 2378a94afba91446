"""What no dump can do to the import: damaged, malformed, made up."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.importers.flight_recorder.dumps import WORLD, ops, read
from tests.sql import rows

from oncall.importers import flight_recorder


def test_a_damaged_file_is_a_stated_gap(fr, tmp_path, incident):
    fr.write(tmp_path, 0, fr.dump([fr.entry(0, 1)], WORLD))
    fr.write(tmp_path, 1, fr.dump([fr.entry(0, 1)], WORLD))
    damaged = tmp_path / "fr_trace_rank_1"
    damaged.write_bytes(damaged.read_bytes()[:200])
    read(tmp_path, incident)
    assert rows(incident, "SELECT rank FROM ranks") == [(0,)]
    assert rows(incident, "SELECT rank, rows, problem LIKE 'truncated%' FROM recordings") == [
        (0, 1, None),
        (1, None, True),
    ]


@pytest.mark.parametrize(
    "broken",
    [
        {"profiling_name": 7},
        {"profiling_name": None},
        {"collective_seq_id": None},
        {"collective_seq_id": 2**70},
        {"process_group": "tensor"},
        {"process_group": ["0", ["unhashable"]]},
        {"input_sizes": [["wide"]]},
        {"input_sizes": [[2**40, 2**40]]},
        {"input_sizes": [[1] * 1000]},
        {"input_sizes": 5},
        {"time_created_ns": "yesterday"},
        {"frames": [{"name": "f"}], "retired": False, "state": "scheduled"},
        {"duration_ms": "long"},
    ],
    ids=lambda broken: next(iter(broken.items()))[0],
)
def test_what_pytorch_never_writes_is_a_problem_not_a_crash(fr, broken, tmp_path, incident):
    fr.write(tmp_path, 0, fr.dump([fr.entry(0, 1)], WORLD))
    bad = fr.dump([fr.entry(0, 1), fr.entry(1, 2, ("9", "dp"), **broken)], WORLD, {0: (1, 1)})
    fr.write(tmp_path, 1, bad)
    read(tmp_path, incident)
    assert rows(incident, "SELECT rank, problem IS NULL FROM recordings ORDER BY rank") == [
        (0, True),
        (1, False),
    ]
    assert rows(incident, "SELECT DISTINCT rank FROM ops") == [(0,)]


@pytest.mark.parametrize(
    "extra",
    [
        {"pg_config": {"0": {"desc": "default_pg", "ranks": "[0, -1]"}}},
        {"pg_config": {"0": {"desc": "default_pg", "ranks": "[0, 99999999999]"}}},
        {"pg_config": {"0": {"desc": "default_pg", "ranks": "[" * 5000}}},
        {"pg_config": {"0": "default_pg"}},
        {"pg_config": [0]},
        {"pg_status": {"0": {"last_enqueued_collective": 2**80, "last_completed_collective": 1}}},
        {"pg_status": {"tp": {}}},
        {"entries": ["all_reduce"]},
    ],
    ids=str,
)
def test_a_malformed_head_is_a_problem_not_a_crash(fr, extra, tmp_path, incident):
    fr.write(tmp_path, 0, fr.dump([fr.entry(0, 1)], WORLD))
    fr.write(tmp_path, 1, fr.dump([fr.entry(0, 1)], WORLD) | extra)
    read(tmp_path, incident)
    assert rows(incident, "SELECT rank FROM recordings WHERE problem IS NOT NULL") == [(1,)]


def test_text_that_utf8_cannot_hold(fr, tmp_path, incident):
    odd = fr.entry(0, 1, ("0", "d\ud800p"), profiling_name="nccl:\udfff", input_dtypes=["\ud800"])
    fr.write(tmp_path, 0, fr.dump([odd], {"0": ("d\ud800p", [0])}, version="\ud8002"))
    read(tmp_path, incident)
    assert ops(incident, "op, dtype") == [("?", "?")]


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


FIELDS = [
    *("process_group", "pg_id", "collective_seq_id", "p2p_seq_id", "op_id", "profiling_name"),
    *("time_created_ns", "input_sizes", "input_dtypes", "output_sizes", "state", "frames"),
    *("time_discovered_completed_ns", "duration_ms", "retired", "is_p2p"),
]
JOBS = map(str, itertools.count())


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(field=st.sampled_from(FIELDS), value=JUNK, done=st.booleans())
def test_any_value_in_any_field_is_read_or_refused(fr, incident, field, value, done, tmp_path):
    job = next(JOBS)
    call = (fr.entry if done else fr.stuck)(1, 2, **{field: value})
    path = fr.write(tmp_path, 0, fr.dump([fr.entry(0, 1), call], WORLD, {0: (2, 1)}))
    flight_recorder.read([path], incident, job)
    (said, problem), *more = rows(
        incident, f"SELECT coalesce(rows, 0), problem FROM recordings WHERE job = '{job}'"
    )
    assert not more
    assert (said == 0) == (problem is not None)
    assert rows(incident, f"SELECT count(*) FROM ops WHERE job = '{job}'") == [(said,)]

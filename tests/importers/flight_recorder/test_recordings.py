"""Real recordings with known truth; skipped where they are not at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.evidence.incident import Incident
from oncall.importers import detect

REPOSITORY = Path(__file__).parents[3]
SHARED = REPOSITORY.parent / "shared" / "data"


@pytest.fixture
def load():
    opened = []

    def load(folder):
        if not folder.is_dir():
            pytest.skip(f"no recordings at {folder}")
        incident = Incident.empty()
        opened.append(incident)
        detect.load([folder], incident, None)
        return lambda sql: incident.con.execute(sql).fetchall()

    yield load
    for incident in opened:
        incident.close()


OPEN = """
    SELECT rank, role, seq, op FROM ops JOIN comms USING (job, comm, rank)
    WHERE NOT done ORDER BY rank"""


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_gloo_rank_2_never_enters(load, form):
    ask = load(SHARED / "flight_recorder" / "h1_not_entered" / form)
    assert ask(OPEN) == [
        (0, "dp", 13, "AllReduce"),
        (1, "dp", 13, "AllReduce"),
        (3, "tp", 13, "AllReduce"),
    ]
    assert ask("SELECT name, list(rank ORDER BY rank) FROM comms GROUP BY name ORDER BY name") == [
        ("0", [0, 1, 2, 3]), ("1", [0, 1]), ("2", [2, 3]), ("3", [0, 2]), ("4", [1, 3]),
    ]  # fmt: skip
    assert ask("SELECT world_size FROM jobs") == [(4,)]
    assert ask("SELECT count(*) FROM stacks")[0][0] == (12 if form == "pickle" else 0)
    behind = (
        "SELECT role, rank FROM launches JOIN comms USING (job, comm, rank) WHERE launched = 12"
    )
    assert set(ask(behind)) == {("tp", 2), ("dp", 2), ("dp", 3)}


def test_pickle_and_json_are_the_same_evidence(load):
    everything = "SELECT * EXCLUDE (job) FROM ops ORDER BY ALL"
    first, second = (
        load(SHARED / "flight_recorder" / "h2_wrong_op" / form)(everything)
        for form in ("pickle", "json")
    )
    assert first == second
    assert len(first) > 100


def test_gloo_with_a_wrong_operation(load):
    ask = load(SHARED / "flight_recorder" / "h2_wrong_op")
    assert ask(
        "SELECT rank, op FROM ops JOIN comms USING (job, comm, rank) "
        "WHERE role = 'tp' AND seq = 13 ORDER BY rank"
    ) == [(0, "AllReduce"), (1, "Broadcast"), (2, "AllReduce"), (3, "AllReduce")]


def test_gloo_healthy_leaves_nothing_open(load):
    ask = load(SHARED / "flight_recorder" / "healthy")
    assert ask(OPEN) == []
    assert ask("SELECT count(*) FROM ops") == [(248,)]


@pytest.mark.parametrize(
    ("fixture", "late"), [("healthy", set()), ("not_entered", {5}), ("wrong_op", set())]
)
def test_shipped_recordings(load, fixture, late):
    ask = load(REPOSITORY / "fixtures" / "flight_recorder" / fixture)
    entered = dict(ask("SELECT rank, max(seq) FROM ops JOIN comms USING (job, comm, rank) "
                       "WHERE role = 'tp' GROUP BY rank"))  # fmt: skip
    assert len(entered) == 8
    assert {rank for rank, seq in entered.items() if seq < max(entered.values())} >= late
    assert bool(ask(OPEN)) == (fixture != "healthy")


def test_nccl_16_ranks_with_a_gpu_error_on_9_and_14(load):
    ask = load(SHARED / "nvrx" / "gpu_error_2nd")
    assert ask("SELECT world_size FROM jobs") == [(16,)]
    assert ask("SELECT count(*), count(DISTINCT rank) FROM ops") == [(278, 16)]
    groups = dict(ask("SELECT role, count(DISTINCT comm) FROM comms GROUP BY role"))
    assert groups["TENSOR_MODEL_PARALLEL_GROUP"] == 4
    assert groups["PIPELINE_MODEL_PARALLEL_GROUP"] == 8
    assert groups["EXPERT_DATA_PARALLEL_GROUP"] == 16
    assert groups["default_pg"] == 1
    behind = """
        SELECT role, list(rank ORDER BY rank) FROM (
            SELECT *, max(launched) OVER (PARTITION BY comm) AS most FROM launches)
        JOIN comms USING (job, comm, rank) WHERE launched < most GROUP BY role"""
    roles = dict(ask(behind))
    assert roles["TENSOR_AND_CONTEXT_PARALLEL_GROUP"] == [9, 14]
    assert set(map(tuple, roles.values())) == {(9, 14)}
    sends = "SELECT peer FROM ops WHERE op = 'Send' AND rank = 9"
    assert set(ask(sends)) == {(1,)}
    assert ask("SELECT bytes FROM ops WHERE rank = 9 AND op = 'AllReduce' AND dtype = 'Long'") == [
        (128,)
    ]

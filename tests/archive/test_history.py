"""What an archive answers, and what a new incident recalls of it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from tests.findings import network_finding

from oncall.archive.engine import engine_at
from oncall.archive.history import Wanted, former_faults, history, recall
from oncall.archive.place import Folder
from oncall.archive.store import Archive
from oncall.core.diagnosis import Blame, Finding
from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.render.text.history import to_json, to_text
from oncall.use_case.culprits import with_history

from .diagnoses import CABLE, DAY_NS, FIRST_NS, added, diagnosis, finding

HOUR_NS = 3600 * 10**9


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(Folder(tmp_path / "archive"))


def year(archive: Archive) -> None:
    """A cable at days 0, 30 and 60, a rank without a host, and a healthy look."""
    for day in (0, 30):
        incident = added(archive, diagnosis(day, finding()))
    archive.solved(incident, "replaced the NIC", FIRST_NS)
    archive.solved(incident, "reseated the cable", FIRST_NS + 1)
    added(archive, diagnosis(60, finding()))
    hang = finding([{"kind": "rank", "rank": 5}], rulebook="hang", verdict="H1", title="Hang")
    added(archive, diagnosis(45, hang, job="gpt"))
    added(archive, diagnosis(50))


def test_who_was_blamed_how_often_and_what_fixed_it(archive: Archive) -> None:
    year(archive)

    found = history(archive, Wanted())

    assert (found.held.incidents, found.held.faults, found.held.jobs) == (5, 4, 2)
    (cable,) = found.by_component
    assert (cable.name, cable.times, cable.fixed_by) == ("gpu017/mlx5_3", 3, "reseated the cable")
    assert cable.mean_between_ns == 30 * DAY_NS
    assert [(one.name, one.times) for one in found.by_kind] == [("nic", 3), ("rank", 1)]
    text = to_text(found, Wanted())
    assert "network NIC 3\n    last fixed by: reseated the cable\n" in text
    assert max(map(len, text.splitlines())) <= 80
    assert json.loads(to_json(found, []))["by_component"][0]["times"] == 3


@pytest.mark.parametrize(
    ("wanted", "times"),
    [
        (Wanted("gpu017"), 3),
        (Wanted("gpu017/mlx5_3"), 3),
        (Wanted("gpu01"), 0),
        (Wanted("gpu017'; DROP TABLE x; --"), 0),
        (Wanted(verdict="H1"), 1),
        (Wanted(verdict="network"), 3),
        (Wanted(cluster="a4"), 0),
        (Wanted(since_ns=FIRST_NS + 29 * DAY_NS), 3),
        (Wanted(until_ns=FIRST_NS + 29 * DAY_NS), 1),
    ],
)
def test_what_is_asked_about(archive: Archive, wanted: Wanted, times: int) -> None:
    year(archive)

    assert len(history(archive, wanted).episodes) == times


@pytest.mark.parametrize("verdict", [None, "NIC", "network", "PORT", "cables"])
def test_a_fault_that_was_called_otherwise_is_the_same(
    archive: Archive, verdict: str | None
) -> None:
    named = {"rulebook": "cables", "verdict": "PORT"}
    for days, fields in ((0, named), (0.01, {}), (30, named)):
        added(archive, diagnosis(days, finding(**fields)))
    wanted = Wanted(verdict=verdict, names={"cables.PORT": "network.NIC"})

    found = history(archive, wanted)

    assert [len(one.incidents) for one in found.episodes] == [2, 1]
    assert [(one.name, one.times) for one in found.by_verdict] == [("network NIC", 2)]


def test_a_component_tells_its_story(archive: Archive) -> None:
    year(archive)
    counters = {"tx_bytes": [0, 10, 30, 5], "link_errors": [7, 7, 9, 9]}
    with Incident.empty() as incident:
        at = [FIRST_NS + number * HOUR_NS // 2 for number in range(4)]
        incident.append("nics", {"node": "gpu017", "nic": "mlx5_3", "at_ns": at, **counters})
        incident.append("hosts", {"node": "gpu017", "at_ns": at, "cpu_busy": 0.5})
        for _ in range(2):  # the same readings twice are one
            archive.add_hours(incident.con, "a3", "llama", FIRST_NS)

    found = history(archive, Wanted("gpu017"))

    values = {one.kind: (one.hours, one.values) for one in found.months}
    assert values["nic"][0] == values["host"][0] == 2
    assert values["nic"][1] == {"tx_bytes": 30, "link_errors": 2}, "a reset counter gained nothing"
    text = to_text(found, Wanted("gpu017"))
    assert "fixed by: reseated the cable" in text and "link errors 2" in text
    assert max(map(len, text.splitlines())) <= 80
    assert {one.kind for one in history(archive, Wanted("gpu017/mlx5_3")).months} == {"nic"}


def blaming(**where: Any) -> Finding:
    return network_finding(Blame("nic" if "nic" in where else "rank", where))


@pytest.mark.parametrize(
    ("where", "days", "said"),
    [
        (CABLE, 70, "3 times on gpu017/mlx5_3, last 10 d before this; "
            "last fixed by: reseated the cable"),
        (CABLE, 29, "once on gpu017/mlx5_3, last 29 d before this"),
        (CABLE | {"nic": "mlx5_4"}, 70, "not on gpu017/mlx5_4; its host was blamed 3 times "
            "(network NIC), last 10 d before this; last fixed by: reseated the cable"),
        (CABLE | {"node": "gpu018"}, 70, "not on gpu018/mlx5_3; elsewhere 3 times, last 10 d "
            "before this; last fixed by: reseated the cable"),
        ({"rank": 3}, 70, "not on gpu017; its host was blamed 3 times (network NIC), last 10 d "
            "before this; last fixed by: reseated the cable"),
    ],
)  # fmt: skip
def test_a_finding_says_whether_it_was_seen_before(
    archive: Archive, where: dict[str, Any], days: int, said: str
) -> None:
    """What came after the incident is not known to it, nor an earlier look at it."""
    year(archive)
    where = {key: value for key, value in where.items() if key != "kind"}
    end_ns = FIRST_NS + days * DAY_NS
    added(archive, diagnosis(days - 0.01, finding([{"kind": "node", "node": "gpu018"}])))
    with Incident.empty() as incident:
        incident.append("hosts", {"node": "gpu017", "at_ns": [end_ns]})
        incident.append("ranks", {"job": "llama", "rank": [3], "node": "gpu017"})
        recall(incident, former_faults(archive, "a3", {}))

        (found,) = with_history(incident, [blaming(**where)])

    assert found.seen_before.replace(" 0 h", "") == said


def test_without_an_archive_nothing_is_said(archive: Archive) -> None:
    with Incident.empty() as incident:
        recall(incident, former_faults(archive, "a3", {}))

        assert with_history(incident, [blaming(**CABLE)])[0].seen_before == ""


@pytest.mark.parametrize("where", ["spark://x", "ray:", "ray://local?workers=none"])
def test_an_engine_that_is_not_known_is_refused(where: str) -> None:
    with pytest.raises(UsageError, match="--engine"), engine_at(where):
        pass


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="no ray: pip install ray")
def test_workers_of_ray_answer_as_one_process_does(archive: Archive, tmp_path: Path) -> None:
    year(archive)
    added(archive, diagnosis(3, finding(), job="gpt"))
    alone = history(archive, Wanted())
    (tmp_path / "archive/findings/month=2026-09/cluster=a3/job=gpt/cut.parquet").write_bytes(b"PAR")

    with engine_at("ray://local?workers=2") as engine:
        assert history(archive, Wanted(), engine) == alone
        assert engine.workers == 2
    assert len(archive.damaged) == 1

"""What a digest carries of queue pairs and traffic: of the job, and of nobody; the newest rows."""

from __future__ import annotations

import numpy as np
import pytest

from oncall.evidence.incident import Incident
from oncall.shards import answer as answering
from oncall.shards.answer import answer
from oncall.shards.wire import Part, Request

S = 10**9


@pytest.fixture
def incident() -> Incident:
    incident = Incident.empty()
    for job in ("j", "other", None):  # the last: counted by a NIC, which knows no jobs
        incident.append("qps", {"job": job, "node": "n", "nic": "mlx5_0", "qpn": [7, 8]})
        incident.append(
            "epochs",
            {"job": job, "node": "n", "start_ns": S + np.arange(100), "bytes": 5, "source": "wr"},
        )
    return incident


def rows(incident: Incident, **asked: int) -> dict[str, int]:
    parts = answer(incident.con, Request("digest", job="j", **asked))
    return {part.table: part.rows for part in parts if isinstance(part, Part)}


def test_rows_of_the_job_and_of_no_job_go(incident: Incident) -> None:
    assert rows(incident) == {"qps": 4, "epochs": 200}


def test_what_was_before_the_window_stays(incident: Incident) -> None:
    assert rows(incident, since_ns=S + 90)["epochs"] == 20


def test_too_many_are_cut_to_the_newest(
    incident: Incident, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(answering.TRAFFIC, "epochs", ("start_ns", 30))
    assert rows(incident)["epochs"] == 30
    [(oldest,)] = incident.con.execute("SELECT min(start_ns) FROM temp.digest_part").fetchall()
    assert oldest == S + 85

"""What is drawn is what the incident holds, and what is not there is said."""

from __future__ import annotations

import numpy as np
import pytest
from tests.findings import finding

from oncall.core.diagnosis import Blame
from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.views.traffic import operations as evidence
from oncall.views.traffic.rate_curves import rate_curves

SENDER = finding(blame=(Blame("rank", {"rank": 2}),), picture="traffic", at_ns=0)


def test_curves_hold_what_the_operation_sent(incident: Incident) -> None:
    assert evidence.has_traffic(incident)
    operation = evidence.reported_operation(incident, SENDER)
    assert operation is not None
    blamed = evidence.blamed_ranks(incident, SENDER)
    traffic = evidence.operation_traffic(incident, operation, blamed)
    curves = rate_curves(traffic, 4000)
    assert [one.rank for one in traffic.senders] == [0, 1, 2, 3]
    assert traffic.blamed == {2}
    for one, rate in zip(traffic.senders, curves.rate, strict=True):
        # Around the operation there may be epochs of its neighbours.
        assert rate.sum() * curves.resolution_ns / 1e9 >= 0.95 * one.bytes
        assert one.rate_bytes_per_s > 0
    slowest = min(traffic.senders, key=lambda one: one.rate_bytes_per_s)
    assert slowest.rank == 2


def test_an_operation_is_found_by_its_number(incident: Incident) -> None:
    evidence.has_traffic(incident)
    rows = incident.con.execute("SELECT comm, turn FROM rank_traffic ORDER BY turn").fetchall()
    comm, turn = rows[0]
    assert evidence.find_operation(incident, comm, turn).turn == turn
    with pytest.raises(UsageError, match="operation 9999 with traffic"):
        evidence.find_operation(incident, comm, 9999)
    with pytest.raises(UsageError, match="0x1 has no traffic"):
        evidence.find_operation(incident, 1, None)


def test_a_blamed_node_is_all_its_ranks(incident: Incident) -> None:
    evidence.has_traffic(incident)
    ((node,),) = incident.con.execute("SELECT node FROM members WHERE rank = 1 LIMIT 1").fetchall()
    assert evidence.blamed_ranks(incident, finding(blame=(Blame("node", {"node": node}),))) == {1}


def test_the_map_of_an_operation_is_a_part_of_that_of_the_job(incident: Incident) -> None:
    evidence.has_traffic(incident)
    operation = evidence.reported_operation(incident, SENDER)
    one = evidence.traffic_map(incident, operation=operation)
    whole = evidence.traffic_map(incident)
    ((total,),) = incident.con.execute("SELECT sum(bytes) FROM traffic").fetchall()
    assert whole.bytes.sum() + whole.unplaced_bytes == total
    assert one.groups == whole.groups
    assert 0 < one.bytes.sum() < whole.bytes.sum()
    assert np.all(np.diag(whole.bytes) == 0)


def test_without_epochs_a_curve_is_unknown_and_not_zero(incident: Incident) -> None:
    evidence.has_traffic(incident)
    incident.con.execute("DELETE FROM flow_epochs; DELETE FROM flow_ends; DELETE FROM flow_comms")
    operation = evidence.reported_operation(incident, SENDER)
    assert operation is not None
    traffic = evidence.operation_traffic(incident, operation)
    assert np.isnan(rate_curves(traffic, 100).rate).all()


def test_no_traffic_is_said() -> None:
    with Incident.empty() as nothing:
        assert not evidence.has_traffic(nothing)

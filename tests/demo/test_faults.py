"""The catalogue of faults: every class by name, and names as people type them."""

from __future__ import annotations

import pytest

from oncall.core.errors import UsageError
from oncall.demo.faults import FAULTS, Fault, fault_named


def test_each_class_has_a_fault_of_its_name() -> None:
    for verdict in ("H1", "H2", "H3", "S1", "S2", "S3"):
        assert verdict in fault_named(verdict).verdicts
    assert fault_named("h1-Stopped").name == "H1-stopped"
    assert not fault_named("healthy").verdicts


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_breaks_one_rank_in_one_way(fault: Fault) -> None:
    if fault.name == "healthy":
        assert not fault.ranks and not fault.orders and fault.signal is None
        return
    assert bool(fault.orders) != (fault.signal is not None)
    assert all(line.endswith(f",rank={fault.ranks[0]}") for line in fault.order().splitlines())


def test_a_slip_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean H1-died"):
        fault_named("h1-die")
    with pytest.raises(UsageError, match="there are H1, "):
        fault_named("???")

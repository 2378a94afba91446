"""Laws of the meaning of counters, whatever a device has and tells."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncall.evidence.codes.nic_counters import (
    PORT,
    PRIORITY,
    WANTED,
    pcie_waiting,
    port_counters,
    priority_counters,
)
from oncall.evidence.schema import BY_NAME

NAMES = st.sampled_from(sorted(WANTED))
READINGS = st.dictionaries(NAMES, st.none() | st.integers(0, 2**64), max_size=40)
COUNTS = st.dictionaries(NAMES, st.integers(0, 2**48), max_size=40)


def test_every_column_is_one_of_its_table() -> None:
    assert set(PORT) <= set(BY_NAME["nics"].column_names)
    for columns in PRIORITY.values():
        assert set(columns) <= set(BY_NAME["nic_priorities"].column_names)


@given(READINGS)
def test_a_column_is_null_or_fits_its_type(values: dict[str, int | None]) -> None:
    rows = [port_counters(values), *priority_counters(values).values()]
    for row in rows:
        assert all(value is None or 0 <= value < 2**63 for value in row.values())


@given(COUNTS, st.data())
def test_counters_that_grow_let_no_column_fall(values: dict[str, int], data: st.DataObject) -> None:
    grown = {name: value + data.draw(st.integers(0, 2**16)) for name, value in values.items()}
    before, after = port_counters(values), port_counters(grown)
    for column, value in before.items():
        later = after[column]
        assert (value is None) == (later is None)
        assert value is None or later is None or value <= later


@given(READINGS, st.dictionaries(st.text(max_size=9), st.integers(), max_size=5))
def test_what_is_not_known_changes_nothing(
    values: dict[str, int | None], unknown: dict[str, int]
) -> None:
    others = {name: value for name, value in unknown.items() if name not in WANTED}
    assert port_counters({**others, **values}) == port_counters(values)


@given(READINGS)
def test_pauses_of_a_port_are_those_of_its_priorities(values: dict[str, int | None]) -> None:
    frames = {f"ethtool/rx_prio{n}_pause": n + 1 for n in range(8)}
    columns = {**values, **frames}
    assert port_counters(columns)["pfc_rx_pause"] == 36
    assert [row["rx_pause"] for row in priority_counters(columns).values()] == list(range(1, 9))


@given(READINGS)
def test_waiting_for_pcie_is_a_share_or_not_known(values: dict[str, int | None]) -> None:
    share = pcie_waiting(values)
    assert share is None or 0 <= share <= 1


def test_a_percentage_beyond_the_whole_is_garbage() -> None:
    assert pcie_waiting({"ethtool/outbound_pci_stalled_wr": 2**32 - 1}) is None
    assert pcie_waiting({"ethtool/outbound_pci_stalled_rd": 7}) == 0.07


def test_nothing_reported_is_nothing_known() -> None:
    assert set(port_counters({}).values()) == {None}
    assert priority_counters({}) == {}

"""Rank cards, communicators and rates of a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pytest

from oncall.console.evidence_queries import GetCommunicator, GetRankCard, GetRates
from oncall.console.queries import GetSnapshot
from oncall.console.recording import Recording
from oncall.console.replay import Replay
from oncall.console.rulebook_store import RulebookStore
from oncall.core.errors import UsageError
from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident
from oncall.views.rates.buckets import Buckets, Series, baseline_of

from .conftest import AT_NS, CULPRIT, Open

Recorded = Callable[[str], Path]


def test_a_card_tells_where_a_rank_runs_and_what_it_did_last(
    opened: Open, recorded: Recorded
) -> None:
    session = opened(recorded("hang"))
    session.ask(GetSnapshot())
    card = session.ask(GetRankCard(CULPRIT))
    facts = dict(card.facts)
    assert (facts["state"], facts["node"], facts["NIC"]) == ("blamed", "gpu001", "mlx5_5")
    rows = card.operations.rows
    assert card.operations.total > len(rows) == 30
    entered = [row[card.operations.columns.index("entered")] for row in rows]
    assert entered == sorted(entered, reverse=True)
    with pytest.raises(UsageError, match="no rank 99"):
        session.ask(GetRankCard(99))


def test_a_card_shows_the_stack_that_the_finding_shows(opened: Open) -> None:
    """That of its last call on any communicator: each numbers its own."""
    session = opened(Path(__file__).parents[2] / "fixtures" / "flight_recorder" / "not_entered")
    [finding, *_] = session.ask(GetSnapshot()).diagnosis.findings
    [of_finding] = finding.stacks
    assert of_finding.at == "last seen in Barrier 2 of default_pg"
    assert session.ask(GetRankCard(of_finding.rank)).stack == of_finding


def test_a_communicator_shows_who_has_not_entered(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("hang"))
    snapshot = session.ask(GetSnapshot())
    [finding] = snapshot.diagnosis.findings
    view = session.ask(GetCommunicator(int(finding.case["comm"], 16), rounds=5))
    assert view.state.shape == (len(view.ranks), len(view.seqs)) == view.duration_ns.shape
    assert len(view.seqs) == len(view.ops) == len(view.round_bytes) <= 5
    assert view.finding_seq == finding.case["seq"] == view.seqs[-1]
    absent = view.ranks[view.state[:, -1] == 0]
    assert CULPRIT in absent
    assert (view.state[:, -1] == 1).sum() == view.summary.waiting
    assert (view.state[:, 0] == 2).all()
    assert (view.duration_ns[:, 0] > 0).all()
    assert f"waiting for rank {CULPRIT}" in view.waits[0] or "waiting for ranks" in view.waits[0]
    with pytest.raises(UsageError, match="no communicator 0x1 "):
        session.ask(GetCommunicator(1))


def test_a_silent_member_is_unknown_not_absent(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("silent"))
    snapshot = session.ask(GetSnapshot())
    [whole] = [one for one in snapshot.communicators if one.role == "world"]
    view = session.ask(GetCommunicator(whole.comm))
    assert (view.state[view.ranks >= 8] == 3).all()
    assert (view.state[view.ranks < 8] != 3).all()


def test_rates_of_suspects_fall_to_zero_and_their_band_does_not(
    opened: Open, recorded: Recorded
) -> None:
    session = opened(recorded("pipeline"))
    session.ask(GetSnapshot())
    series = session.ask(GetRates())
    assert series[0].suspect and series[0].subject == f"rank {CULPRIT}"
    first = series[0]
    after = first.at_ns > first.at_ns[0] + AT_NS + 20 * NS_PER_S
    # It stood still and was seen to: zeros, no gaps.
    assert (first.value[after] == 0).all()
    assert np.nanmax(first.value[~after]) > 0
    assert first.baseline is not None
    assert len(first.value) <= 240


def test_a_rank_alone_is_finer_than_among_others(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("slow"))
    session.ask(GetSnapshot())
    [one, *_] = session.ask(GetRates("rank 3"))
    [among, *_] = session.ask(GetRates("ranks"))
    assert {series.subject for series in session.ask(GetRates("rank 3"))} == {"rank 3"}
    assert len(one.value) > len(among.value)
    with pytest.raises(UsageError, match="unknown kind of rate"):
        session.ask(GetRates("moods"))
    with pytest.raises(UsageError, match="not a rank"):
        session.ask(GetRates("rank x"))


def test_operations_are_counted_once(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("healthy"))
    snapshot = session.ask(GetSnapshot())
    with Incident.open(recorded("healthy")) as incident:
        rows = incident.con.execute(
            "SELECT comm, count(*) FROM ops WHERE rank = 3 AND ended_ns IS NOT NULL GROUP BY comm"
        ).fetchall()
    assert snapshot.moment.first_ns is not None and snapshot.moment.last_ns is not None
    counted = 0.0
    for series in session.ask(GetRates("rank 3")):
        if series.unit == "ops/s":
            length_s = (
                (snapshot.moment.last_ns - snapshot.moment.first_ns) / len(series.value) / 1e9
            )
            counted += np.nansum(series.value) * length_s
    assert counted == pytest.approx(sum(count for _, count in rows))


def test_a_node_that_fell_silent_is_a_gap(
    recorded: Recorded, store: RulebookStore, tmp_path: Path
) -> None:
    """Half a minute without a row of node gpu002, while gpu001 goes on."""
    with Incident.open(recorded("healthy")) as incident:
        ((first_ns,),) = incident.con.execute("SELECT min(started_ns) FROM ops").fetchall()
        low, high = first_ns + 20 * NS_PER_S, first_ns + 50 * NS_PER_S
        incident.con.execute(
            "DELETE FROM ops WHERE rank >= 8 AND ended_ns > ? AND started_ns < ?", [low, high]
        )
        incident.save(tmp_path / "gap.oncall")
    session = Replay(Recording([tmp_path / "gap.oncall"]), store)
    session.ask(GetSnapshot())
    series = {one.subject: one for one in session.ask(GetRates("ranks"))}
    inside = (series["rank 8"].at_ns > low) & (series["rank 8"].at_ns < high)
    assert np.isnan(series["rank 8"].value[inside]).mean() > 0.9
    assert not np.isnan(series["rank 0"].value[inside]).any()
    session.close()


def test_nics_rates_are_differences_of_counters(
    recorded: Recorded, store: RulebookStore, tmp_path: Path
) -> None:
    with Incident.open(recorded("hang")) as incident:
        ((first_ns,),) = incident.con.execute("SELECT min(started_ns) FROM ops").fetchall()
        seconds = np.arange(60)
        for nic in (1, CULPRIT):
            incident.append(
                "nics",
                {
                    "node": "gpu001",
                    "nic": f"mlx5_{nic}",
                    "port": 1,
                    "at_ns": first_ns + seconds * NS_PER_S,
                    # Set back to zero once: no rate is known then, least of all a negative one.
                    "tx_bytes": np.where(seconds < 30, seconds, seconds - 30) * 1000,
                    "rx_bytes": seconds * 10,
                },
            )
        incident.save(tmp_path / "nics.oncall")
    session = Replay(Recording([tmp_path / "nics.oncall"]), store)
    session.ask(GetSnapshot())
    series = session.ask(GetRates("nics"))
    assert [one.name for one in series[:2]] == ["gpu001 mlx5_5 tx", "gpu001 mlx5_5 rx"]
    assert series[0].suspect and not series[2].suspect
    for one, rate in zip(series, (1000, 10, 1000, 10), strict=True):
        known = one.value[~np.isnan(one.value)]
        assert len(known) and known == pytest.approx(rate)
    only = session.ask(GetRates("nic gpu001 mlx5_1"))
    assert {one.subject for one in only} == {"nic gpu001 mlx5_1"}
    session.close()


def test_the_line_is_where_the_rulebook_decides(recorded: Recorded, tmp_path: Path) -> None:
    """`rate_below` of the mean rate of the other members, with the site's own value."""
    with Incident.open(recorded("slow")) as incident:
        incident.con.execute("UPDATE ops SET send_rate = 10 + rank, recv_rate = NULL")
        incident.save(tmp_path / "rates.oncall")

    def sends(store: RulebookStore) -> Series:
        session = Replay(Recording([tmp_path / "rates.oncall"]), store)
        session.ask(GetSnapshot())
        found = [one for one in session.ask(GetRates()) if "sends" in one.name]
        session.close()
        return found[0]

    shipped = sends(RulebookStore(site=tmp_path / "site"))
    own = sends(RulebookStore(overrides={"rounds.rate_below": "0.4"}, site=tmp_path / "site"))
    assert shipped.threshold is not None and own.threshold is not None
    assert own.threshold == pytest.approx(shipped.threshold / 2)
    assert 0.8 * 10 < shipped.threshold < 0.8 * 26


def test_what_came_after_a_fault_began_is_no_baseline() -> None:
    buckets = Buckets(0, 10**9, 240)
    value = np.full(240, 2.0)
    value[40:] = 4.5  # from 40 s on; the first part is one of 60 s
    assert baseline_of(value, buckets) == pytest.approx((1.8, 4.7))
    for began_ns in (40 * 10**9, 52 * 10**9):  # it shows a while later
        assert baseline_of(value, buckets, began_ns=began_ns) == pytest.approx((1.8, 2.2))
    assert baseline_of(value, buckets, began_ns=200 * 10**9) == pytest.approx((1.8, 4.7))
    for began_ns in (3 * 10**9, -1):  # too short to tell
        assert baseline_of(value, buckets, began_ns=began_ns) is None


@pytest.mark.parametrize("span_ns", [1, 59_801_954_148, 785_340_000_001])
def test_the_last_instant_lies_in_the_last_bucket(span_ns: int) -> None:
    first_ns = 1_767_225_599_123_456_789
    buckets = Buckets.over(first_ns, first_ns + span_ns, 73)
    assert buckets.last_ns == first_ns + span_ns
    ((place,),) = duckdb.execute(f"SELECT {buckets.sql(str(first_ns + span_ns))}").fetchall()
    assert place == buckets.count - 1

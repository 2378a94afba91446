"""Who is waited for and waits for nobody, where hosts call ahead of their devices."""

from __future__ import annotations

from dataclasses import replace

from oncall.evidence import Incident
from oncall_lab.pipeline import simulate_pipeline
from oncall_lab.pipeline.fault import PipelineFault
from oncall_lab.pipeline.scenario import PipelineScenario

# Ranks 0-7: two to a tensor group, two replicas, two stages.
JOB = PipelineScenario(
    seed=7, recorder="calls", iterations=8, tp=2, pp=2, dp=2, layers=4, micro_batches=4
)
COMPUTES = PipelineFault("hang", rank=2, iteration=6, task="forward", micro_batch=2)


ALL_WAIT = "SELECT weight > 0 FROM progress_symptoms WHERE name = 'all wait'"


def call_ahead(incident: Incident, ranks: tuple[int, int]) -> None:
    """The next collective of a tensor group whose hosts do not wait for a Recv."""
    incident.con.execute(
        f"""INSERT INTO ops BY NAME
            SELECT o.* REPLACE (seq + 1 AS seq, last_ns + 100_000 AS enqueued_ns)
            FROM ops o JOIN (SELECT rank, max(enqueued_ns) AS last_ns FROM ops GROUP BY rank) l
                USING (rank)
            WHERE rank IN {ranks} AND kind = 'coll'
                AND comm = (SELECT mode(comm) FROM ops WHERE rank = {ranks[0]} AND kind = 'coll')
            QUALIFY row_number() OVER (PARTITION BY rank ORDER BY seq DESC) = 1"""
    )


def test_a_receiver_whose_host_called_on_waits_for_the_sender() -> None:
    with simulate_pipeline(replace(JOB, faults=(COMPUTES,)))[0] as incident:
        call_ahead(incident, (6, 7))
        incident.require(["awaited_callers", "called_transfers"])
        con = incident.con
        waits = "SELECT rank, peer, answered FROM called_transfers WHERE rank = 6 AND receives "
        waits += "AND (last OR NOT answered)"
        assert con.execute(waits).fetchall() == [(6, 2, False)]
        assert con.execute("SELECT rank FROM awaited_callers").fetchall() == [(2,)]


def test_all_others_wait_for_who_stopped() -> None:
    with simulate_pipeline(replace(JOB, faults=(COMPUTES,)))[0] as incident:
        incident.require(["awaited_callers", "progress_symptoms"])
        con = incident.con
        awaited = "SELECT rank, waiting, others FROM awaited_callers"
        assert con.execute(awaited).fetchall() == [(2, 7, 0)]
        assert con.execute(ALL_WAIT).fetchall() == [(True,)]


def test_that_not_all_others_wait_for_one_call_is_no_sign_of_a_stop() -> None:
    other = PipelineFault("hang", rank=4, iteration=6, task="forward", micro_batch=1)
    with simulate_pipeline(replace(JOB, faults=(COMPUTES, other)))[0] as incident:
        incident.require(["progress_symptoms"])
        assert incident.con.execute(ALL_WAIT).fetchall() == [(False,)]


def test_a_log_that_was_cut_before_the_others_is_no_stop_of_all() -> None:
    with simulate_pipeline(JOB)[0] as incident:
        con = incident.con
        con.execute(
            "DELETE FROM ops WHERE enqueued_ns > (SELECT max(enqueued_ns) FROM ops)"
            " - CASE rank WHEN 2 THEN 3e8 WHEN 5 THEN 1.5e8 ELSE 2e8 - rank * 1e7 END"
        )
        incident.require(["awaited_callers"])
        others = con.execute("SELECT rank, others FROM awaited_callers").fetchall()
        assert not others or len(others) > 1 or others[0][1] > 0


def test_a_rank_that_made_no_call_the_others_share_is_waited_for() -> None:
    with simulate_pipeline(replace(JOB, faults=(COMPUTES,)))[0] as incident:
        con = incident.con
        con.execute("DELETE FROM ops WHERE rank = 7 AND NOT (kind = 'p2p' AND seq = 5)")
        incident.require(["awaited_callers"])
        awaited = "SELECT rank, waiting, others FROM awaited_callers"
        assert con.execute(awaited).fetchall() == [(7, 7, 0)]

"""Dumps as evidence: what each table says of small dumps, and what no file can do to the import."""

from __future__ import annotations

import os

import pytest
from tests.importers.flight_recorder.dumps import WORLD, ops, read
from tests.sql import rows

from oncall.core.errors import BadInput
from oncall.evidence.incident import Incident


def test_reading_processes_import_no_database(python_prints):
    code = (
        "import sys, oncall.importers.flight_recorder.batch; "
        "print([name for name in ('duckdb', 'oncall.evidence.incident') if name in sys.modules])"
    )
    assert python_prints(code) == "[]"


@pytest.mark.parametrize("suffix", ["", ".json"])
def test_an_operation(fr, suffix, tmp_path, incident):
    call = fr.entry(7, 13, duration_ms=1.5)
    fr.write(tmp_path, 1, fr.dump([call], WORLD), suffix)
    read(tmp_path, incident)
    assert ops(
        incident, "job, rank, kind, seq, op, dtype, count, bytes, peer, root, started_ns, "
        "ended_ns - enqueued_ns, duration_ns, done, observed_ns"
    ) == [("llama", 1, "coll", 13, "AllReduce", "Float", 4, 16, None, None, None, 500_000,
           1_500_000, True, None)]  # fmt: skip


def test_p2p_and_collectives_count_on_their_own(fr, tmp_path, incident):
    pipeline = ("5", "pp")
    calls = [
        fr.entry(0, 9),
        fr.entry(1, 3, pipeline, p2p_seq_id=40, is_p2p=True, profiling_name="nccl:send 0->1",
                 pg_id=1),
        fr.stuck(2, 3, pipeline, p2p_seq_id=41, is_p2p=True, profiling_name="nccl:recv 0<-1",
                 pg_id=1, output_sizes=[[8]]),
    ]  # fmt: skip
    groups = {"0": ("default_pg", range(8)), "5": ("pp", [3, 7])}
    fr.write(tmp_path, 3, fr.dump(calls, groups))
    read(tmp_path, incident)
    assert ops(incident, "kind, op, seq, peer, count, done") == [
        ("coll", "AllReduce", 9, None, 4, True),
        ("p2p", "Send", 40, 7, 4, True),
        ("p2p", "Recv", 41, 7, 8, False),
    ]


def test_a_peer_outside_its_group_is_unknown(fr, tmp_path, incident):
    send = fr.entry(0, 1, is_p2p=True, p2p_seq_id=1, profiling_name="nccl:send 0->9")
    fr.write(tmp_path, 0, fr.dump([send], WORLD))
    read(tmp_path, incident)
    assert ops(incident, "peer") == [(None,)]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"input_sizes": [[2], [3]], "input_dtypes": ["Half", "Half"]}, ("Half", 5, 10)),
        ({"input_sizes": [[2], [3]], "input_dtypes": ["Half", "Long"]}, (None, 5, None)),
        ({"input_sizes": [[2]], "input_dtypes": ["Int4"]}, ("Int4", 2, None)),
        ({"input_sizes": [[]], "input_dtypes": ["Float"]}, ("Float", 1, 4)),
        ({"input_sizes": [], "input_dtypes": []}, (None, None, None)),
        ({"input_sizes": [], "input_dtypes": [], "profiling_name": "gloo:barrier"}, (None, 0, 0)),
    ],
)
def test_sizes(fr, fields, expected, tmp_path, incident):
    fr.write(tmp_path, 0, fr.dump([fr.entry(0, 1, **fields)], WORLD))
    read(tmp_path, incident)
    assert ops(incident, "dtype, count, bytes") == [expected]


def test_version_2_4_lacks_most_fields(fr, tmp_path, incident):
    old = ("process_group", "pg_id", "collective_seq_id", "p2p_seq_id", "profiling_name")
    old += ("time_created_ns", "input_sizes", "output_sizes", "state")
    calls = [
        {key: value for key, value in call.items() if key in old}
        for call in (
            fr.entry(0, 1),
            fr.stuck(1, 1, p2p_seq_id=1, profiling_name="nccl:recv 0<-1"),
        )
    ]
    fr.write(tmp_path, 0, {"version": "2.4", "entries": calls})
    read(tmp_path, incident)
    assert ops(incident, "kind, op, seq, dtype, done") == [
        ("coll", "AllReduce", 1, None, True),
        ("p2p", "Recv", 1, None, False),
    ]
    assert rows(incident, "SELECT version, rows FROM recordings") == [("2.4", 2)]


def test_gloo_is_done_as_far_as_its_group_has_counted(fr, tmp_path, incident):
    """gloo counts every operation (op_id), and its entries stay unretired when a dump races."""
    call = {"profiling_name": "gloo:all_reduce"}
    calls = [fr.stuck(n, n + 1, op_id=2 * n + 2, **call) for n in range(3)]
    fr.write(tmp_path, 0, fr.dump(calls, status={0: (6, 4)}))
    read(tmp_path, incident)
    assert ops(incident, "seq, done") == [(1, True), (2, True), (3, False)]


def test_a_number_both_kinds_have_reached_proves_nothing(fr, tmp_path, incident):
    send = fr.entry(1, 1, p2p_seq_id=1, is_p2p=True, profiling_name="nccl:send 0->1")
    fr.write(tmp_path, 0, fr.dump([fr.stuck(0, 1), send], WORLD, {0: (1, 1)}))
    read(tmp_path, incident)
    assert ops(incident, "op, done") == [("AllReduce", False), ("Send", True)]


def coalesced(number, seq, finish, **more):
    names = {"profiling_name": "nccl:coalesced", "input_sizes": [], "input_dtypes": []}
    return finish(number, seq, **(names | more))


@pytest.mark.parametrize("done", [True, False])
def test_coalesced_collectives_become_one(fr, done, tmp_path, incident):
    names = {"profiling_name": "nccl:_all_gather_base"}
    end = fr.entry if done else fr.stuck
    calls = [
        fr.stuck(0, 1, **names),
        fr.stuck(1, 1, input_sizes=[[6]], **names),
        coalesced(2, 1, end),
        fr.stuck(3, 2),
    ]
    fr.write(tmp_path, 0, fr.dump(calls, WORLD))
    read(tmp_path, incident)
    assert ops(incident, "seq, op, count, bytes, dtype, done") == [
        (1, "AllGather", 10, 40, "Float", done),
        (2, "AllReduce", 4, 16, "Float", False),
    ]


def test_coalesced_p2p_keep_their_peers_and_complete_together(fr, tmp_path, incident):
    batch = {"p2p_seq_id": 5, "is_p2p": True}
    calls = [
        fr.stuck(0, 0, profiling_name="nccl:send 0->1", **batch),
        fr.stuck(1, 0, profiling_name="nccl:recv 0<-1", **batch),
        coalesced(2, 0, fr.entry, **batch),
        fr.stuck(3, 0, profiling_name="nccl:send 0->1", p2p_seq_id=6, is_p2p=True),
    ]
    fr.write(tmp_path, 0, fr.dump(calls, WORLD))
    read(tmp_path, incident)
    assert ops(incident, "seq, op, peer, done") == [
        (5, "Send", 1, True),
        (5, "Recv", 1, True),
        (6, "Send", 1, False),
    ]
    (together,), (same,), (alone,) = ops(incident, "group_id")
    assert together is not None and together == same and alone is None


def test_two_ranks_in_one_exchange_are_not_in_crossed_order(fr, tmp_path, incident):
    """Both have called Send and Recv as one batch: neither waits for a call of the other."""
    batch = {"p2p_seq_id": 5, "is_p2p": True}
    for rank in (0, 1):
        names = f"nccl:send {rank}->{1 - rank}", f"nccl:recv {rank}<-{1 - rank}"
        calls = [fr.stuck(i, 0, profiling_name=name, **batch) for i, name in enumerate(names)]
        ended = coalesced(2, 0, fr.stuck, **batch)
        fr.write(tmp_path, rank, fr.dump([*calls, ended], WORLD))
    read(tmp_path, incident)
    incident.require(["hang_roots"])
    found = incident.con.execute("SELECT DISTINCT how, ends FROM hang_roots").fetchall()
    assert found == [("together", [0, 1])]


def test_of_active_entries_alone_a_batch_without_its_end_is_done(fr, tmp_path, incident):
    def call(number, name, seq):
        return fr.stuck(number, 0, profiling_name=name, p2p_seq_id=seq, is_p2p=True)

    lone, batch = call(0, "nccl:recv 0<-1", 4), [(1, "nccl:send 0->1"), (2, "nccl:recv 0<-1")]
    ended = [call(number, name, 5) for number, name in batch]
    newest = call(4, "nccl:send 0->1", 7)
    fr.write(tmp_path, 0, fr.dump([lone, *ended, call(3, "nccl:recv 0<-1", 6), newest], WORLD))
    read(tmp_path, incident)
    assert ops(incident, "seq, op, done") == [
        (4, "Recv", True),
        (5, "Send", True),
        (5, "Recv", True),
        (6, "Recv", True),
        (7, "Send", False),
    ]


def test_members_without_a_dump_are_members_but_not_seen(fr, tmp_path, incident):
    groups = {"0": ("default_pg", range(4)), "3": ("tp", [2, 3])}
    fr.write(tmp_path, 2, fr.dump([fr.entry(0, 1)], groups))
    read(tmp_path, incident)
    assert rows(incident, "SELECT world_size FROM jobs") == [(4,)]
    assert rows(incident, "SELECT rank, node FROM ranks") == [(2, None)]
    assert rows(
        incident,
        "SELECT name, role, list((rank, comm_rank, size) ORDER BY rank) FROM comms "
        "GROUP BY ALL ORDER BY name",
    ) == [
        ("0", "default_pg", [(0, 0, 4), (1, 1, 4), (2, 2, 4), (3, 3, 4)]),
        ("3", "tp", [(2, 0, 2), (3, 1, 2)]),
    ]


def test_a_rank_without_entries_is_seen(fr, tmp_path, incident):
    fr.write(tmp_path, 0, fr.dump([fr.entry(0, 1)], WORLD))
    silent = fr.dump([], WORLD, {0: (1, 0)})
    del silent["entries"]  # as PyTorch's JSON does
    fr.write(tmp_path, 1, silent, ".json")
    read(tmp_path, incident)
    assert rows(incident, "SELECT rank FROM ranks ORDER BY rank") == [(0,), (1,)]
    assert rows(incident, "SELECT rank, rows, problem FROM recordings ORDER BY rank") == [
        (0, 1, None),
        (1, 0, None),
    ]


def test_without_members_those_who_carry_a_group_are_its_members(fr, tmp_path, incident):
    for rank in (0, 1, 3):
        calls = [fr.entry(0, 1, ("12"[rank // 2], "tp"), pg_id=1), fr.entry(1, 1)]
        fr.write(tmp_path, rank, fr.dump(calls, {"": ("", [])}))
    read(tmp_path, incident)
    assert rows(
        incident, "SELECT name, list(rank ORDER BY rank) FROM comms GROUP BY name ORDER BY name"
    ) == [("0", [0, 1, 2, 3]), ("1", [0, 1]), ("2", [2, 3])]
    assert rows(incident, "SELECT DISTINCT note LIKE '%list no group%' FROM recordings") == [
        (True,)
    ]


def test_launches_are_reported_for_collectives_only(fr, tmp_path, incident):
    groups = {"0": ("default_pg", range(2)), "4": ("tp", [0, 1]), "6": ("pp", [0, 1])}
    send = {"is_p2p": True, "profiling_name": "nccl:send 0->1"}
    calls = [
        fr.stuck(0, 13, ("4", "tp"), pg_id=3),
        fr.stuck(1, 0, ("6", "pp"), pg_id=5, p2p_seq_id=70, **send),
    ]
    status = {0: (9, 9), 3: (13, 12), 5: (70, 69)}
    fr.write(tmp_path, 0, fr.dump(calls, groups, status))
    # Rank 1 has no entry: creation order tells which group pg_id 3 is, rank 0 what it counts.
    fr.write(tmp_path, 1, fr.dump([], groups, {0: (9, 9), 3: (12, 12), 5: (69, 69)}))
    read(tmp_path, incident)
    assert rows(
        incident,
        "SELECT role, rank, launched, completed, state, source, at_ns FROM launches "
        "JOIN comms USING (job, comm, rank) ORDER BY rank",
    ) == [
        ("tp", 0, 13, 12, "running", "flight_recorder", None),
        ("tp", 1, 12, 12, "running", "flight_recorder", None),
    ]


def test_a_group_of_both_kinds_is_counted_where_its_numbers_tell_the_kind(fr, tmp_path, incident):
    """Its last call of either kind gives its number: rank 0 launched a send last, of number 40."""
    send = {"is_p2p": True, "p2p_seq_id": 40, "profiling_name": "nccl:send 0->1"}
    for rank, launched in enumerate([40, 73]):
        calls = [fr.entry(0, 72), fr.entry(1, 73), fr.entry(2, 73, **send)]
        fr.write(tmp_path, rank, fr.dump(calls, WORLD, {0: (launched, 73)}))
    read(tmp_path, incident)
    assert rows(incident, "SELECT rank, launched, completed FROM launches") == [(1, 73, 73)]
    incident.require(["contradictions"])
    assert rows(incident, "FROM contradictions") == []


def test_stacks_of_what_is_in_flight_and_of_the_last_call(fr, tmp_path, incident):
    def at(line):
        return {"frames": [{"name": "step", "filename": "train.py", "line": line}]}

    tp = ("4", "tp")
    calls = [
        fr.entry(0, 1, **at(1)),
        fr.entry(1, 2, **at(2)),
        fr.stuck(2, 1, tp, **at(3)),
        fr.stuck(3, 2, tp, **at(4)),
    ]
    fr.write(tmp_path, 0, fr.dump(calls, WORLD | {"4": ("tp", [0, 1])}))
    read(tmp_path, incident)
    assert rows(incident, "SELECT rank, kind, seq, frames FROM stacks ORDER BY frames") == [
        (0, "coll", 2, ["step at train.py:2"]),
        (0, "coll", 1, ["step at train.py:3"]),
        (0, "coll", 2, ["step at train.py:4"]),
    ]


def test_of_a_dump_kept_twice_the_pickle_is_read(fr, tmp_path, incident):
    fr.write(tmp_path, 1, fr.dump([fr.entry(0, 1)]))
    fr.write(tmp_path, 1, fr.dump([fr.entry(0, 1)]), ".json")
    read(tmp_path, incident)
    assert rows(incident, "SELECT rank, rows, problem IS NULL FROM recordings ORDER BY path") == [
        (1, 1, True),
        (None, None, False),
    ]


def test_of_several_attempts_in_a_folder_the_newest_is_read(fr, tmp_path, incident):
    for attempt, began in ((0, 1000), (1, 90_000)):
        for rank in range(2):
            made = fr.write(tmp_path, rank, fr.dump([fr.entry(began, 1 + attempt)]))
            made.rename(tmp_path / f"attempt{attempt}_rank_{rank}")
    read(tmp_path, incident)
    assert rows(incident, "SELECT rank, seq FROM ops ORDER BY ALL") == [(0, 2), (1, 2)]
    left_out = "SELECT path, problem FROM recordings WHERE rank IS NULL ORDER BY path"
    (path, problem), _ = rows(incident, left_out)
    assert path.endswith("attempt0_rank_0")
    assert (
        problem
        == "ignored, of another attempt or job: of ranks 0-1 attempt1_rank_0 and others are newer"
    )


def test_two_jobs_mixed(fr, tmp_path, incident):
    fr.write(tmp_path, 0, fr.dump([], {"0": ("default_pg", range(8))}))
    fr.write(tmp_path, 1, fr.dump([], {"0": ("default_pg", range(4))}))
    with pytest.raises(BadInput, match=r"rank_0: 8 ranks, 0-7; .*rank_1: 4 ranks, 0-3.*two jobs"):
        read(tmp_path, incident)
    assert incident.rows("recordings") == 0


def test_a_rank_that_its_own_job_does_not_have(fr, tmp_path, incident):
    fr.write(tmp_path, 9, fr.dump([], {"0": ("default_pg", range(8))}))
    with pytest.raises(BadInput, match="rank 9, but says that the job has ranks 0-7"):
        read(tmp_path, incident)


def test_a_file_name_without_a_rank(fr, tmp_path, incident):
    fr.write(tmp_path, 0, fr.dump([])).rename(tmp_path / "trace")
    read(tmp_path, incident)
    assert rows(incident, "SELECT rank, problem FROM recordings") == [
        (None, "the file's name does not end with a rank")
    ]


def test_many_files_on_all_cores_are_the_same_as_few(fr, tmp_path, incident, monkeypatch):
    """Processes and batches only share out the work."""
    few = "oncall.importers.flight_recorder.importer._FEW_FILES"
    monkeypatch.setattr(few, 64)
    world = {"0": ("default_pg", range(140)), "3": ("tp", range(140))}
    for rank in range(140):
        calls = [fr.entry(0, 1), fr.stuck(1, rank % 3 + 1, ("3", "tp"), pg_id=rank % 2 + 1)]
        fr.write(tmp_path, rank, fr.dump(calls, world))
    (tmp_path / "fr_trace_rank_77").write_bytes(b"")
    read(tmp_path, incident)
    assert incident.rows("ops") == 2 * 139
    everything = "SELECT * FROM ops ORDER BY ALL"
    with Incident.empty() as alone:
        monkeypatch.setattr(few, 1000)
        read(tmp_path, alone)
        assert rows(alone, everything) == rows(incident, everything)
        assert alone.rows("comms") == incident.rows("comms") == 280


@pytest.mark.parametrize(("later_s", "known"), [(1, True), (-1, False)])
def test_a_file_older_than_its_newest_stamp_has_a_wrong_time(
    fr, later_s, known, tmp_path, incident
):
    """As archives unpack that store local times."""
    entry = fr.entry(0, 1)
    fr.write(tmp_path, 0, fr.dump([entry], WORLD))
    (path,) = tmp_path.iterdir()
    newest_ns = max(entry["time_created_ns"], entry["time_discovered_completed_ns"] or 0)
    written_ns = newest_ns + later_s * 10**9
    os.utime(path, ns=(written_ns, written_ns))
    read(tmp_path, incident)
    assert rows(incident, "SELECT written_ns FROM recordings") == [(written_ns if known else None,)]

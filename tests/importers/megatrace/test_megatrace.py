"""Megatrace logs as evidence, and the communicators that the calls give away."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sql import rows

from oncall.core.errors import ExitCode
from oncall.evidence.incident import Incident
from oncall.importers.megatrace import importer as megatrace
from oncall.importers.megatrace.groups import Lane, find_groups
from oncall.importers.megatrace.log import parse
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose, exit_code
from oncall.views import words

ARCHIVE = (
    Path(__file__).parents[3].parent / "shared" / "data" / "megatrace" / "log_rank2_slow.tar.xz"
)
T0 = 1_755_590_104
S = 1_000_000_000


def v2(rank: int, at_ns: int, op_count: int, op: str = "AllReduce", **other: Any) -> str:
    tail = f" groupHash {other['group']}" if "group" in other else ""
    count, stream = other.get("count", 8), other.get("stream", "0x10")
    return (
        f"[save_count 1] [{at_ns // S}.{at_ns % S:09d}] [Rank {rank}] Fun {op} "
        f"Data {count} stream {stream} opCount {op_count}{tail}\n"
    )


def v1(rank: int, at_ns: int, op: str = "AllReduce", count: int = 8) -> str:
    at = f"{at_ns // S}.{at_ns % S:09d}"
    return f"[{at}] [Rank {rank}] Fun {op} Data {count} stream 0x55f615683660\n"


def read(tmp_path: Path, incident: Incident, logs: dict[str, str]) -> None:
    paths = [tmp_path / name for name in logs]
    for path, text in zip(paths, logs.values(), strict=True):
        path.write_text(text)
    megatrace.read(paths, incident, "j")


# ---------------------------------------------------------------------- lines


@given(st.integers(0, 400))
def test_a_log_cut_anywhere_never_yields_a_number_cut_short(cut: int) -> None:
    text = "".join(v2(0, T0 * S + i, 1000 + i) for i in range(4))
    calls = parse(text[:cut].encode())
    whole = text[:cut].count("\n")
    assert (len(calls) if calls else 0) == whole
    assert calls is None or calls.op_count.tolist() == [1000 + i for i in range(whole)]


@given(st.integers(0, 10**6), st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=3))))
def test_a_line_says_the_same_among_others_as_alone(
    other: int, damages: list[tuple[int, bytes]]
) -> None:
    """Lines that are laid out as the first one are read together, whatever the others are."""
    lines = [v2(i % 2, T0 * S + i, 5 * i, group=2**40 * (i % 3)) for i in range(12)]
    lines.insert(other % 12, v1(7, T0 * S + other))
    log = bytearray("".join(lines).encode())
    for place, text in damages:
        at = place % len(log)
        log[at : at + 1] = text
    found = parse(bytes(log))
    written = bytes(log).split(b"\n")
    alone = [one for line in written[:-1] if (one := parse(line + b"\n")) is not None]
    assert (found is None) == (not alone)
    if found is not None:
        for name in ("rank", "at_ns", "count", "stream", "op_count", "comm"):
            said = [value for one in alone for value in getattr(one, name).tolist()]
            assert getattr(found, name).tolist() == said, name
        assert [found.ops[code] for code in found.op_code] == [one.ops[0] for one in alone]
        assert len(found) + found.torn == sum(
            not line.startswith(b"\r") and line != b"" for line in written
        )


def test_fields_come_in_either_order_with_others_beside_them() -> None:
    line = v2(4, T0 * S + 6, 7).rstrip("\n")
    texts = [" groupHash -2 opCount 9", " datatype 9 groupHash -2 opCount 9 commRank 3"]
    log = "".join(line.replace(" opCount 7", text) + "\n" for text in texts)
    calls = parse(log.encode())
    assert calls is not None
    assert (calls.op_count.tolist(), calls.comm.tolist()) == ([9, 9], [2**64 - 2] * 2)
    assert calls.torn == 0
    torn = parse((line + " datatype\n" + line.replace(" 7", " x") + "\n" + line + "\n").encode())
    assert torn is not None
    assert (len(torn), torn.torn) == (1, 2)


@pytest.mark.parametrize(
    ("folders", "hosts"),
    [
        (["a", "a", "b", "b"], ["a", "a", "b", "b"]),
        (["logs"] * 4, [None] * 4),
        (["rank0", "rank1", "rank2", "rank3"], [None] * 4),
    ],
)
def test_a_folder_for_each_host_names_it(
    tmp_path: Path, folders: list[str], hosts: list[str | None]
) -> None:
    for folder in set(folders):
        (tmp_path / folder).mkdir()
    logs = {f"{folder}/rank_{i}.log": v2(i, T0 * S, 1) for i, folder in enumerate(folders)}
    with Incident.empty() as incident:
        read(tmp_path, incident, logs)
        found = rows(incident, "SELECT node FROM ranks ORDER BY rank")
    assert [node for (node,) in found] == hosts


def test_an_operation_is_known_by_its_call_alone(tmp_path: Path) -> None:
    with Incident.empty() as incident:
        read(tmp_path, incident, {"rank_0.log": v2(0, T0 * S, 5, group=9)})
        assert rows(
            incident,
            "SELECT comm, seq, rank, kind, op, count, bytes, stream, group_id, enqueued_ns, "
            "ended_ns, done, observed_ns FROM ops",
        ) == [(9, 5, 0, "coll", "AllReduce", 8, None, 16, None, T0 * S, None, None, None)]


def test_send_and_recv_share_a_number_in_one_group_call(tmp_path: Path) -> None:
    text = "".join(v2(0, T0 * S + i, 3, op, group=1) for i, op in enumerate(("Send", "Recv")))
    with Incident.empty() as incident:
        read(tmp_path, incident, {"rank_0.log": text})
        assert rows(incident, "SELECT kind, op, seq, group_id, peer FROM ops ORDER BY op") == [
            ("p2p", "Recv", 3, 3, None),
            ("p2p", "Send", 3, 3, None),
        ]


def test_group_hash_tells_the_members(tmp_path: Path) -> None:
    logs = {f"rank_{r}.log": v2(r, T0 * S + r, 0, group=5 + r % 2) for r in range(4)}
    with Incident.empty() as incident:
        read(tmp_path, incident, logs)
        assert rows(incident, "SELECT comm, rank, comm_rank, size FROM comms ORDER BY ALL") == [
            (5, 0, 0, 2),
            (5, 2, 1, 2),
            (6, 1, 0, 2),
            (6, 3, 1, 2),
        ]


def test_without_every_log_no_size_is_claimed(tmp_path: Path) -> None:
    logs = {f"rank_{r}.log": v2(r, T0 * S, 0, group=5) for r in (0, 2)}
    with Incident.empty() as incident:
        read(tmp_path, incident, logs)
        assert rows(incident, "SELECT DISTINCT size FROM comms") == [(None,)]
        assert rows(incident, "SELECT world_size FROM jobs") == [(3,)]


def test_a_log_without_numbers_is_counted(tmp_path: Path) -> None:
    logs = {
        f"rank_{r}.log": "".join(v1(r, T0 * S + i * S + r * 1000) for i in range(12))
        for r in range(2)
    }
    with Incident.empty() as incident:
        read(tmp_path, incident, logs)
        assert rows(incident, "SELECT count(DISTINCT comm), max(seq) FROM ops") == [(1, 11)]
        version, note = rows(incident, "SELECT version, note FROM recordings")[0]
        assert version == "v1" and "counting lines" in note


def test_a_communicator_of_one_rank_keeps_its_count_at_zero(tmp_path: Path) -> None:
    text = "".join(v2(0, T0 * S + i, 0) for i in range(3)) + v2(0, T0 * S + 9, 1, stream="0x2")
    with Incident.empty() as incident:
        read(tmp_path, incident, {"rank_0.log": text})
        assert rows(incident, "SELECT rank, size FROM comms") == [(0, 1)]
        assert rows(incident, "SELECT seq FROM ops WHERE comm IS NOT NULL ORDER BY seq") == [
            (0,),
            (1,),
            (2,),
        ]


def test_unknown_memberships_are_said(tmp_path: Path) -> None:
    text = "".join(v2(0, T0 * S + i, 1 + i % 3) for i in range(20))
    with Incident.empty() as incident:
        read(tmp_path, incident, {"rank_0.log": text})
        assert rows(incident, "SELECT count(comm) FROM ops") == [(0,)]
        assert "memberships unknown" in rows(incident, "SELECT problem FROM recordings")[0][0]


def test_a_rank_recorded_twice_counts_once(tmp_path: Path) -> None:
    text = "".join(v2(0, T0 * S + i, i, group=1) for i in range(3))
    with Incident.empty() as incident:
        read(tmp_path, incident, {"a.log": text, "b.log": text})
        assert incident.rows("ops") == 3
        assert rows(incident, "SELECT problem FROM recordings WHERE rows = 0") == [
            ("left out: a.log records rank 0 at the same time",)
        ]


@pytest.mark.parametrize(
    "data", [b"", os.urandom(4000), b"[save_count 1] [1755590104.254021144] [Rank 2] Fun", b"{}"]
)
def test_junk_becomes_a_recording_with_its_problem(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "rank_0.log"
    path.write_bytes(data)
    with Incident.empty() as incident:
        megatrace.read([path, tmp_path / "absent"], incident, "j")
        found = rows(incident, "SELECT rows, problem IS NOT NULL FROM recordings")
        assert found == [(0, True), (0, True)]


def test_absurd_numbers_are_torn_lines(tmp_path: Path) -> None:
    good = v2(0, T0 * S, 0, group=2**64 + 3)
    text = good + good.replace("Data 8", f"Data {2**64}") + good.replace("Rank 0", f"Rank {2**40}")
    with Incident.empty() as incident:
        read(tmp_path, incident, {"rank_0.log": text})
        assert rows(incident, "SELECT comm FROM ops") == [(3,)]
        assert "2 of 3" in rows(incident, "SELECT problem FROM recordings")[0][0]


# --------------------------------------------------------------------- groups


def lanes(
    tp: int, replicas: int, jitter_ns: float, apart_ns: float, seed: int, operations: int = 400
) -> list[Lane]:
    """Tensor-parallel groups that run the same program, each at its own, wandering pace."""
    draw = np.random.default_rng(seed)
    numbers = np.arange(operations)
    made = []
    for group in range(replicas):
        pace = np.cumsum(draw.normal(2e6, 5e5, operations)) + draw.normal(0, apart_ns, operations)
        for member in range(tp):
            keep = draw.random(operations) > 0.2
            at_ns = T0 * S + pace + draw.normal(0, jitter_ns, operations)
            call = numbers % 3
            made.append(
                Lane(group * tp + member, numbers[keep], call[keep], at_ns[keep].astype(np.int64))
            )
    return made


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([2, 4, 8]), st.integers(1, 4), st.integers(0, 1000))
def test_members_are_found_whatever_the_ring_lost(tp: int, replicas: int, seed: int) -> None:
    found = find_groups(lanes(tp, replicas, 2e5, 2e7, seed))
    assert sorted(map(sorted, found)) == [
        list(range(group * tp, (group + 1) * tp)) for group in range(replicas)
    ]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_constant_clock_offsets_do_not_hide_members(seed: int) -> None:
    made = lanes(4, 2, 2e5, 2e7, seed)
    skewed = [Lane(x.rank, x.seq, x.call, x.at_ns + x.rank * 7_000_000) for x in made]
    assert sorted(map(sorted, find_groups(skewed))) == [[0, 1, 2, 3], [4, 5, 6, 7]]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_where_the_times_do_not_tell_nothing_is_claimed(seed: int) -> None:
    # Every rank wanders by many operations on its own: no two of them are together.
    assert find_groups(lanes(1, 6, 0, 5e7, seed)) == []


# ------------------------------------------------------------------ recording


@pytest.mark.skipif(not ARCHIVE.exists(), reason="the recordings are not on this machine")
def test_real_recording_of_eight_ranks(tmp_path: Path) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path)
    with Incident.empty() as incident:
        megatrace.read(sorted(tmp_path.rglob("*.log")), incident, "j")
        groups = rows(
            incident,
            "SELECT list(rank ORDER BY rank) FROM comms GROUP BY comm HAVING count(*) > 1",
        )
        everyone = list(range(8))
        pairs = [[0, 1], [2, 3], [4, 5], [6, 7]]
        assert sorted(members for (members,) in groups) == sorted([*pairs, *[everyone] * 3])
        assert rows(incident, "SELECT kind, comm IS NULL FROM ops GROUP BY ALL ORDER BY 1") == [
            ("coll", False),
            ("p2p", True),
        ]
        assert rows(incident, "SELECT sum(rows), count(problem) FROM recordings") == [(114097, 0)]
        window = f"BETWEEN {(T0 + 67) * S} AND {(T0 + 101) * S}"
        late = dict(
            rows(
                incident,
                f"""SELECT a.rank, avg((a.enqueued_ns > b.enqueued_ns)::INTEGER)
                    FROM ops a JOIN ops b USING (comm, seq)
                    JOIN (SELECT comm FROM comms GROUP BY comm HAVING count(*) = 2) USING (comm)
                    WHERE a.rank + 1 = b.rank AND a.enqueued_ns {window} GROUP BY a.rank""",
            )
        )
        assert late[2] > 0.92 and late[2] == max(late.values())


# ------------------------------------------------------------------ bracketed


def v3(rank: int, at_ns: int, op_count: int, op: str, group: int, **other: Any) -> str:
    stream, before = other.get("stream", "(nil)"), other.get("before", "[job-1] [0] ")
    return (
        f"{before}[10.0.0.{rank // 2}] [node{rank // 2}] [save_count 7] "
        f"[{at_ns // S}.{at_ns % S:09d}] [Rank {rank}] [PCI 0000:{rank:02x}:00.0] [Func nccl{op}] "
        f"[Data 8] [stream {stream}] [opCount {op_count}] [groupHash 0x{group:016x}]\n"
    )


@pytest.mark.parametrize("before", ["", "[job-1] [0] ", "[a b] [] [x] "])
def test_a_line_in_brackets_names_host_and_gpu(tmp_path: Path, before: str) -> None:
    logs = {f"rank_{r}.log": v3(r, T0 * S, 1, "AllReduce", 5, before=before) for r in range(4)}
    with Incident.empty() as incident:
        read(tmp_path, incident, logs)
        assert rows(incident, "SELECT rank, node, pci_bus FROM ranks ORDER BY rank") == [
            (r, f"node{r // 2}", f"0000:{r:02x}:00.0") for r in range(4)
        ]
        assert rows(incident, "SELECT DISTINCT comm, op, seq, count FROM ops") == [
            (5, "AllReduce", 0, 8)
        ]


def test_numbers_of_a_stream_become_numbers_of_each_communicator(tmp_path: Path) -> None:
    """Rank 0 has both communicators on one stream, rank 1 one of them alone."""
    shared = [(5, "AllReduce"), (6, "AllGather"), (5, "AllReduce"), (6, "AllGather")]
    logs = {
        "rank_0.log": "".join(
            v3(0, T0 * S + n, n + 1, op, group) for n, (group, op) in enumerate(shared)
        ),
        "rank_1.log": "".join(v3(1, T0 * S + n, n + 1, "AllGather", 6) for n in range(2)),
    }
    with Incident.empty() as incident:
        read(tmp_path, incident, logs)
        found = rows(incident, "SELECT rank, comm, list(seq ORDER BY seq) FROM ops GROUP BY ALL")
        assert sorted(found) == [(0, 5, [0, 1]), (0, 6, [0, 1]), (1, 6, [0, 1])]
        assert rows(incident, "SELECT DISTINCT holes FROM recordings") == [(0,)]


def test_calls_that_follow_at_once_are_one_group_call(tmp_path: Path) -> None:
    """A host that waits for what it sent calls the next Recv later than that."""
    at = [(0, "Send"), (30_000, "Recv"), (900_000, "Send"), (2_000_000, "Recv")]
    text = "".join(v3(0, T0 * S + ns, n + 1, op, 9) for n, (ns, op) in enumerate(at))
    with Incident.empty() as incident:
        read(tmp_path, incident, {"rank_0.log": text})
        found = rows(incident, "SELECT op, group_id FROM ops ORDER BY enqueued_ns")
    groups = [group for _, group in found]
    assert [op for op, _ in found] == ["Send", "Recv", "Send", "Recv"]
    assert groups[0] == groups[1]
    assert len(set(groups)) == 3


def test_a_log_that_ends_in_a_wait_is_not_called_healthy(tmp_path: Path) -> None:
    """A log of calls has no ends: its last moment shows waits, and not whether they resolved."""
    calls = [T0 * S + i * S // 10 for i in range(20)]
    late = {1, 6, 8}  # one of each group: a log cut anywhere, no rank alone
    logs = {
        f"rank{rank}": "".join(
            v2(rank, at + rank * 1000, i, group=1 + rank // 4)
            for i, at in enumerate(calls[: 20 - (rank in late)])
        )
        for rank in range(12)
    }
    with Incident.empty() as incident:
        read(tmp_path, incident, logs)
        found = diagnose(incident, load_rulebooks([shipped_folder()]))
    assert not found.findings
    assert exit_code(found) == ExitCode.TOO_LITTLE_COVERAGE
    assert "9 ranks wait" in words.doubt(found)

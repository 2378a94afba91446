"""The source `verbs` over real files of a posting process: what comes into a shard."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncall import native
from oncall.core.errors import BadInput
from oncall.node.agent.agent import Agent
from oncall.node.common.declaration import default_options
from oncall.node.verbs.verbs_file import HEADER, VerbsReader

Posting = Callable[..., Any]
MakeAgent = Callable[..., Agent]
Until = Callable[[Callable[[], object]], None]
SealedRows = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture
def agent(make_agent: MakeAgent) -> Agent:
    options = default_options().changed("verbs", every_ns=10_000_000, timeout_ns=100_000_000)
    return make_agent(sources=("verbs", "traffic"), source_options=options)


@pytest.fixture
def process(posting: Posting, rings: Path) -> Any:
    columns = {"LD_PRELOAD": str(native.verbs_library()), "RANK": "5", "ONCALL_JOB": "llama"}
    return posting(run_dir=rings.parent, **columns)


def rows_so_far(agent: Agent) -> int:
    return agent._accounts["verbs"].rows


def test_queue_pairs_and_windows_are_in_a_shard(
    agent: Agent, process: Any, until: Until, sealed_rows: SealedRows
) -> None:
    process.tell("pair 7 8 128", *["post 7 10 1000", "poll"] * 20)
    until(lambda: agent.step() or rows_so_far(agent) >= 2)
    process.tell("destroy 7")
    until(lambda: agent.step() or rows_so_far(agent) >= 3)
    agent.finish()
    pairs = sealed_rows(
        "SELECT DISTINCT job, node, nic, qpn, rank, peer_gid, peer_qpn, pid FROM qps"
    )
    gid = "0000:0000:0000:0000:0000:ffff:0a4d:0002"
    assert pairs == [("llama", "gpu017", "fake_0", 7, 5, gid, 8, process.process.pid)]
    assert {row[0] for row in sealed_rows("SELECT state FROM qps")} == {"rts", "reset"}
    [(created,)] = sealed_rows("SELECT count(DISTINCT created_ns) FROM qps")
    assert created == 1
    [window] = sealed_rows(
        "SELECT job, rank, qpn, posted, completed, outstanding, bytes, end_ns > start_ns, probe "
        "FROM wr_windows"
    )
    assert window == ("llama", 5, 7, 10, 10, 0, 10_000, True, None)


def test_a_request_that_stands_still_is_reported_with_the_traffic_around_it(
    agent: Agent, process: Any, until: Until, sealed_rows: SealedRows
) -> None:
    process.tell("pair 7 8 128", *["post 7 10 1000", "poll"] * 20)
    process.tell("hold 7", "post 7 3 1000")
    until(lambda: agent.step() or agent._accounts["traffic"].rows)  # epochs come last
    agent.finish()
    stuck = sealed_rows(
        "SELECT outstanding, oldest_ns, end_ns - start_ns FROM wr_windows WHERE oldest_ns NOTNULL"
    )
    assert stuck and all(row[0] == 3 and row[1] == row[2] > 100_000_000 for row in stuck)
    [(bytes_, source, epoch_ns)] = sealed_rows(
        "SELECT sum(bytes), any_value(source), max(epoch_ns) FROM epochs"
    )
    assert (bytes_, source, epoch_ns) == (200_000, "wr", 32_000)


def test_every_epoch_is_stored_if_that_is_asked_for(
    make_agent: MakeAgent, process: Any, until: Until, sealed_rows: SealedRows
) -> None:
    options = default_options().changed("verbs", every_ns=10_000_000, all_epochs=True)
    agent = make_agent(sources=("verbs",), source_options=options)
    process.tell("pair 7 8 128", *["post 7 10 1000", "poll"] * 20)
    until(lambda: agent.step() or rows_so_far(agent) >= 3)
    agent.finish()
    assert sealed_rows("SELECT sum(bytes), bool_or(undercount) FROM epochs") == [(200_000, False)]


def test_what_fails_has_sent_nothing(
    agent: Agent, process: Any, until: Until, sealed_rows: SealedRows
) -> None:
    process.tell("pair 7 8 128", "hold 7", "post 7 2 1000", "fail 7 12", "poll")
    until(lambda: agent.step() or rows_so_far(agent) >= 2)
    agent.finish()
    assert sealed_rows("SELECT bytes FROM wr_windows") == [(0,)]
    assert sealed_rows("SELECT DISTINCT state FROM qps") == [("err",)]


def test_a_dead_process_is_read_to_its_end(
    agent: Agent, process: Any, until: Until, sealed_rows: SealedRows
) -> None:
    process.tell("pair 7 8 128", "post 7 10 1000", "poll", "hold 7", "post 7 1 1")
    process.kill()
    until(lambda: agent.step() or rows_so_far(agent) >= 2)
    agent.finish()
    assert sealed_rows("SELECT completed FROM wr_windows WHERE oldest_ns IS NULL") == [(10,)]
    assert sealed_rows("SELECT count(*) FROM wr_windows WHERE oldest_ns NOTNULL") == [(0,)]


# ------------------------------------------------------------------------- garbage


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("magic", 7, "not a verbs file"),
        ("layout_version", 2, "a verbs file of layout 2, and this oncall reads layout 1"),
        ("queue_pair_bytes", 64, "queue_pair_bytes is 64, not 256"),
        ("request_slots", 63, "63 requests is not a power of two"),
        ("request_slots", 1 << 20, "truncated: requests end at byte"),
        ("queue_pairs_at", 100, "queue pairs at byte 100"),
        ("rank", 0x7FFFFFFF, "forged or damaged"),
    ],
)
def test_a_wrong_header_is_named(
    process: Any, tmp_path: Path, field: str, value: int, message: str
) -> None:
    process.tell("pair 7 8 128")
    assert HEADER.fields is not None
    kind, offset, *_ = HEADER.fields[field]
    wrong = bytearray(process.file.read_bytes())
    struct.pack_into({4: "<I", 8: "<Q"}[kind.itemsize], wrong, offset, value)
    path = tmp_path / "wrong.verbs"
    path.write_bytes(bytes(wrong))
    with pytest.raises(BadInput, match=message):
        VerbsReader.open(path)


def test_garbage_in_records_is_left_out_and_counted(
    agent: Agent, process: Any, until: Until, sealed_rows: SealedRows
) -> None:
    process.tell("pair 7 8 128", "post 7 10 1000", "poll", "post 7 10 1000", "poll")
    with VerbsReader.open(process.file, consume=False) as reader:
        first = reader._start
    with process.file.open("r+b") as file:
        file.seek(first + 8)
        file.write(b"\xff" * 32)  # its times, and its bytes
    until(lambda: agent.step() or rows_so_far(agent) >= 2)
    agent.finish()
    assert sealed_rows("SELECT bytes FROM wr_windows") == [(10_000,)]
    assert sealed_rows("SELECT max(dropped) FROM collectors WHERE source = 'verbs'") == [(1,)]

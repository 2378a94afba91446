"""From a NIC's events to rows in a sealed shard, over a stand-in for DOCA; pollers that fail."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from dpa_frames import batch, frame, page

from oncall.node.agent.agent import Agent
from oncall.node.agent.recorder import Recorder
from oncall.node.agent.service import make_sources
from oncall.node.common.config import Configuration
from oncall.node.common.declaration import declared
from oncall.node.common.log import Log
from oncall.node.common.source import Collected, read_clock
from oncall.node.dpa.dpa import DpaSource
from oncall.node.store.catalog import sealed_shards
from oncall.node.store.reader import open_shards
from oncall.node.traffic.recent_traffic import RecentTraffic

EVENTS = 8000
EVERY_NS = 50_000  # between bursts of 4 KB in one packet


def memory() -> RecentTraffic:
    """Room for all, however long ago it was."""
    return RecentTraffic(most_bytes=2**24, keep_ns=2**62)


def until(is_so: Callable[[], object], within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


# ----------------------------------------------------------------------- end to end


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Four queue pairs send in turn from now on, of the last one each hundredth event is lost;
    when that begins, ns."""
    declared()  # imports what a collector finds: not while the events pass
    begin_ns = time.time_ns() + 200_000_000
    path = tmp_path / "events"
    with path.open("w", encoding="ascii") as file:
        for number in range(EVENTS):
            turn, qpn = divmod(number, 4)
            if qpn != 3 or turn % 100 != 50:
                file.write(f"{begin_ns + number * EVERY_NS} 0 5 {70 + qpn} 128 1 {turn}\n")
    monkeypatch.setenv("ONCALL_STANDIN_EVENTS", str(path))
    return begin_ns


def test_what_queue_pairs_sent_is_in_a_shard(poller: Path, tmp_path: Path, events: int) -> None:
    config = Configuration(
        node="gpu017",
        data_dir=tmp_path / "data",
        run_dir=tmp_path / "run",
        keep_free_bytes=0,
        sources=("dpa",),
    ).with_source(
        "dpa",
        poller=str(poller),
        nics=("mlx5_standin",),
        every_ns=50_000_000,
        all_epochs=True,
    )
    config.data_dir.mkdir()
    log = Log()
    agent = Agent(config, make_sources(config, {}), Recorder(config, log), log)
    over_ns = events + EVENTS * EVERY_NS + 200_000_000  # what is left is closed by then
    until(lambda: agent.step() or time.time_ns() > over_ns)
    agent.finish()

    def rows(query: str) -> list[tuple[Any, ...]]:
        with open_shards(sealed_shards(config.data_dir)) as shards:
            found: list[tuple[Any, ...]] = shards.con.execute(query).fetchall()
            return found

    assert rows("SELECT DISTINCT node, nic, epoch_ns, source FROM epochs") == [
        ("gpu017", "mlx5_standin", 32_000, "dpa")
    ]
    sent = EVENTS // 4 * 4096
    lost = EVENTS // 400 * 4096
    assert rows(
        "SELECT qpn, sum(bytes), bool_or(undercount) FROM epochs GROUP BY 1 ORDER BY 1"
    ) == [
        *((70 + at, sent, False) for at in range(3)),
        (73, sent - lost, True),
    ]
    ((twice, off_grid),) = rows(
        "SELECT count(*) - count(DISTINCT (qpn, start_ns)), max(start_ns % epoch_ns) FROM epochs"
    )
    assert (twice, off_grid) == (0, 0)
    ((first_ns, last_ns),) = rows("SELECT min(start_ns), max(start_ns) FROM epochs")
    # A little late at most, by the age of the newest event when the NIC was asked.
    assert -48_000 <= first_ns - events < 100_000_000
    assert abs(last_ns - first_ns - EVENTS * EVERY_NS) < 1_000_000
    ((dropped, error),) = rows("SELECT max(dropped), max(error) FROM collectors WHERE source='dpa'")
    assert (dropped, error) == (EVENTS // 400, None)


def test_a_nic_that_is_not_there_is_said(poller: Path) -> None:
    source = DpaSource(poller, ["mlx5_9"], "gpu017", memory())
    until(
        lambda: any(
            "restarting it" in reported for reported in source.collect(read_clock()).problems
        )
    )
    (problem,) = source.collect(read_clock()).problems
    source.close()
    assert problem == "mlx5_9: no NIC here is called mlx5_9; restarting it after 2 s"


@pytest.mark.parametrize(
    ("state", "words"),
    [("1", "on standby: another program"), ("2", "was deactivated"), ("3", "stopped by an error")],
)
def test_a_nic_whose_program_does_not_run_is_said(
    poller: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, words: str
) -> None:
    path = tmp_path / "state"
    path.write_text(state)
    monkeypatch.setenv("ONCALL_STANDIN_STATE", str(path))
    source = DpaSource(poller, ["mlx5_standin"], "gpu017", memory(), 10_000_000, pauses_s=(0.2,))
    until(lambda: any(words in reported for reported in source.collect(read_clock()).problems))
    path.write_text("0")
    until(lambda: not source.collect(read_clock()).problems)
    source.close()


# ------------------------------------------------------------------ pollers that fail


class Watched:
    """A source over a program that plays the poller, and all that came of it."""

    def __init__(self, program: Path) -> None:
        self.recent = memory()
        self.source = DpaSource(program, ["mlx5_0"], "gpu017", self.recent, pauses_s=(0.05,))
        self.rows: list[tuple[Any, ...]] = []
        self.last = Collected()

    def collect(self) -> Collected:
        self.last = self.source.collect(read_clock())
        assert not self.last.batches  # what is sent stays in memory
        if (reported := self.recent.between(0, 2**62)).rows:
            columns = (reported.columns[name].tolist() for name in ("qpn", "bytes", "undercount"))
            self.rows = list(zip(*columns, strict=True))
        return self.last

    def says(self, words: str) -> bool:
        return any(words in problem for problem in self.collect().problems)


@pytest.fixture
def watch(playing: Callable[..., Path]) -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def make(*lines: str) -> Watched:
        made.append(Watched(playing(*lines)))
        return made[-1]

    yield make
    for watched in made:
        watched.source.close()


def reported(*payloads: bytes) -> str:
    frames = b"".join(frame(payload, after_ns=10**18) for payload in payloads)
    return f"sys.stdout.buffer.write({frames!r}); sys.stdout.flush()"


def test_one_that_dies_is_started_again(watch: Callable[..., Watched]) -> None:
    watched = watch(reported(page(batch(1, 7, 100, 5))), "sys.exit(3)")
    until(lambda: watched.collect() and len(watched.rows) >= 3)
    until(lambda: watched.says("ended (exit 3); restarting it after 0.05 s"))
    assert set(watched.rows) == {(7, 160, False)}


def test_garbage_ends_it(watch: Callable[..., Watched]) -> None:
    watched = watch("write(b'x' * 100)", "time.sleep(60)")
    until(lambda: watched.says("its output has no valid frames: is it the poller of dpa/?"))


def test_another_version_is_said(watch: Callable[..., Watched]) -> None:
    watched = watch(f"write({frame(b'', version=2)!r})", "time.sleep(60)")
    until(lambda: watched.says("speaks version 2, this collector reads 1: rebuild it"))


def test_a_page_cut_off_by_death_is_no_page(watch: Callable[..., Watched]) -> None:
    whole = frame(page(batch(1, 7, 100, 5)), after_ns=10**18)
    watched = watch(f"write({whole!r})", f"write({whole[:-7]!r})", "os.kill(os.getpid(), 9)")
    until(lambda: watched.says("ended (signal 9)"))
    assert set(watched.rows) == {(7, 160, False)}


def test_a_damaged_page_is_said(watch: Callable[..., Watched]) -> None:
    watched = watch(reported(page(batch(1, 7, 100, 5), batches=3)), "time.sleep(60)")
    until(lambda: watched.says("mlx5_0: a page of 192 bytes cannot hold 3 batches"))


def test_a_problem_is_over_with_the_next_page(watch: Callable[..., Watched]) -> None:
    problem = frame(b"on standby", kind=2)
    watched = watch(f"write({problem!r})", "time.sleep(0.3)", reported(page()), "time.sleep(60)")
    until(lambda: watched.says("mlx5_0: on standby"))
    until(lambda: not watched.collect().problems)


def test_rows_wait_for_the_end_of_a_poll(watch: Callable[..., Watched]) -> None:
    """Two threads of the NIC counted one epoch, and their counts came in two pages."""
    pages = (page(batch(1, 7, 100, 5), more=1), page(batch(1, 7, 100, 4, flags=2), number=2))
    watched = watch(reported(*pages), "time.sleep(60)")
    until(lambda: watched.collect() and watched.rows)
    assert watched.rows == [(7, 288, True)]


def test_more_than_can_be_stored_is_cut_off_in_time(watch: Callable[..., Watched]) -> None:
    """Of every queue pair the same time is left, and it is said that this is not all."""
    busy = [batch(1, 7 + qpn, 32 * at, 5) for at in range(1100) for qpn in range(10)]
    watched = watch(reported(page(*busy)), "time.sleep(60)")
    until(lambda: watched.collect() and watched.rows)
    counted = Counter(qpn for qpn, _, _ in watched.rows)
    assert len(counted) == 10 and set(counted.values()) == {819}
    assert all(undercount for _, _, undercount in watched.rows)
    assert watched.last.dropped == 11_000 - 8_190


def test_losses_add_up_over_lives(watch: Callable[..., Watched]) -> None:
    lives = [page(boot=boot, gaps=gaps) for boot, gaps in ((1, 5), (1, 7), (2, 2))]
    watched = watch(reported(*lives), "time.sleep(60)")
    until(lambda: watched.collect().dropped == 9)


def test_what_is_estimated_is_noted(watch: Callable[..., Watched]) -> None:
    watched = watch(reported(page(estimated=3)), "time.sleep(60)")
    until(lambda: any("estimated" in note for note in watched.collect().notes))


def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "nothing")
    until(lambda: watched.says("cannot be started: No such file"))
    watched.source.close()


@pytest.mark.parametrize(
    ("program", "nics", "why"),
    [
        (None, ["mlx5_0"], "`poller` in [dpa] is not set"),
        (Path("/bin/true"), [], "`nics` in [dpa] is not set"),
    ],
)
def test_without_a_poller_there_is_nothing_to_see(
    program: Path | None, nics: Sequence[str], why: str
) -> None:
    source = DpaSource(program, nics, "gpu017", memory())
    assert source.collect(read_clock()).notes == (f"no NIC measures its queue pairs: {why}",)
    source.close()


def test_closing_ends_the_poller(watch: Callable[..., Watched], tmp_path: Path) -> None:
    path = tmp_path / "pid"
    watched = watch(f"open({str(path)!r}, 'w').write(str(os.getpid()))", "time.sleep(600)")
    until(lambda: path.exists() and path.read_text())
    pid = int(path.read_text())
    watched.source.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)

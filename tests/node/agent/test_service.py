"""The collector as a process of its own: signals, kill -9, locks, its socket, a full disk."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from ring_writer import RingWriter, operations

from oncall.node.agent.clients import MOST_ANSWERS
from oncall.node.agent.service import build, listen, make_folders
from oncall.node.common.config import Configuration
from oncall.node.common.log import Log
from oncall.node.rings.ring_layout import Operation
from oncall.node.store.catalog import sealed_shards
from oncall.node.store.places import socket_path
from oncall.node.store.reader import open_shards
from oncall.node.store.wire import Request

Rows = Callable[[str], list[tuple[Any, ...]]]
Until = Callable[[Callable[[], object]], None]
COMM = 0xFEDC_BA98_7654_3210


class Collector:
    """A running `oncall collect`, and what it says."""

    def __init__(self, config: Configuration, *options: str) -> None:
        self.log = config.run_dir.with_name(f"log-{time.monotonic_ns()}")
        places = ["--data-dir", str(config.data_dir), "--run-dir", str(config.run_dir)]
        with self.log.open("w") as stderr:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "oncall.cli.main", "collect", "--node", "gpu017"),
                    *places,
                    *options,
                ],
                stderr=stderr,
            )

    @property
    def said(self) -> str:
        return self.log.read_text()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def collecting(config: Configuration, until: Until, *options: str) -> Iterator[Collector]:
    collector = Collector(config, *options)
    try:
        until(lambda: "collecting on" in collector.said or collector.process.poll() is not None)
        assert collector.process.poll() is None, collector.said
        yield collector
    finally:
        collector.process.kill()
        collector.process.wait()


def ask(config: Configuration, request: Request) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(str(socket_path(config.run_dir)))
        client.sendall(request.line())
        with client.makefile("rb") as answer:
            return answer.read()


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "collect.toml"
    path.write_text('keep_free = "0 B"\n')
    return path


def _drained(ring: RingWriter) -> bool:
    return bool(ring.header["tail"][0] == ring.header["head"][0])


def test_sigterm_drains_and_seals(
    config: Configuration, rings: Path, until: Until, sealed_rows: Rows, toml: Path
) -> None:
    with collecting(config, until, "--config", str(toml)) as collector:
        ring = RingWriter(rings)
        ring.communicator(0, COMM)
        ring.append(operations(1, 5000))
        until(lambda: _drained(ring))
        ring.append(operations(5001, 10))
        assert collector.end() == 0
    assert sealed_rows("SELECT count(*), max(seq) FROM ops") == [(5010, 5010)]
    assert "all rows are sealed" in collector.said
    assert not socket_path(config.run_dir).exists()


def test_once_drains_what_is_there(
    config: Configuration, rings: Path, sealed_rows: Rows, toml: Path
) -> None:
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    ring.append(operations(1, 7))
    assert Collector(config, "--config", str(toml), "--once").process.wait(60) == 0
    assert sealed_rows("SELECT count(*) FROM ops") == [(7,)]


def test_kill_9_loses_nothing_that_was_committed(
    config: Configuration, rings: Path, until: Until, sealed_rows: Rows, toml: Path
) -> None:
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    committed = 0
    for round_ in range(3):
        with collecting(config, until, "--config", str(toml)) as collector:
            ring.append(operations(1 + round_ * 1000, 1000))
            until(lambda: _drained(ring))
            # An answer comes after a commit: what it counts is safe.
            assert b'"rows"' in ask(config, Request("digest", job="llama"))
            committed = (round_ + 1) * 1000
            collector.end(signal.SIGKILL)
    Collector(config, "--config", str(toml), "--once").process.wait(60)
    assert sealed_rows("SELECT count(DISTINCT seq) FROM ops WHERE done") == [(committed,)]
    ((dropped,),) = sealed_rows("SELECT max(dropped) FROM collectors WHERE source = 'rings'")
    assert dropped == 0


def test_pairs_are_counted_on_after_a_restart(
    config: Configuration, rings: Path, sealed_rows: Rows, toml: Path
) -> None:
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    for first in (1, 4):
        ring.append(operations(first, 3, op=Operation.SEND, peer=1))
        assert Collector(config, "--config", str(toml), "--once").process.wait(60) == 0
    numbered = sealed_rows("SELECT seq, pair_seq FROM ops WHERE done ORDER BY seq")
    assert numbered == [(n, n) for n in range(1, 7)]


def test_what_a_kill_9_cost_is_counted(
    config: Configuration, rings: Path, until: Until, sealed_rows: Rows, tmp_path: Path
) -> None:
    seldom = tmp_path / "seldom.toml"
    seldom.write_text('keep_free = "0 B"\ncommit_every = "1 h"\n')
    ring = RingWriter(rings, records=1024)  # so small that it is read before a commit is due
    ring.communicator(0, COMM)
    with collecting(config, until, "--config", str(seldom)) as collector:
        ring.append(operations(1, 100))
        until(lambda: _drained(ring))
        ask(config, Request("digest", job="llama"))  # commits
        ring.append(operations(101, 60))
        until(lambda: _drained(ring))
        collector.end(signal.SIGKILL)
    Collector(config, "--config", str(seldom), "--once").process.wait(60)
    assert sealed_rows("SELECT count(*) FROM ops WHERE ended_ns IS NOT NULL") == [(100,)]
    ((dropped,),) = sealed_rows("SELECT max(dropped) FROM collectors WHERE source = 'rings'")
    assert dropped == 60 * 5


@pytest.mark.slow
def test_kill_9_at_any_moment_leaves_shards_that_can_be_read(
    config: Configuration, rings: Path, until: Until, toml: Path
) -> None:
    toml.write_text('keep_free = "0 B"\nseal_every = "50 ms"\ncommit_every = "10 ms"\n')
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    for round_ in range(4):
        with collecting(config, until, "--config", str(toml)) as collector:
            for step in range(5 + 3 * round_):
                ring.append(operations(1 + round_ * 10_000 + step * 100, 100))
                time.sleep(0.02)
            collector.end(signal.SIGKILL)
    Collector(config, "--config", str(toml), "--once").process.wait(60)
    with open_shards(sealed_shards(config.data_dir)) as shards:
        assert shards.gaps == ()
        rows = shards.con.execute("SELECT count(*), count(DISTINCT seq) FROM ops WHERE done")
        ((count, distinct),) = rows.fetchall()
    assert count == distinct > 0  # nothing twice, though every kill hit another moment
    assert not list(config.data_dir.glob("live*"))


def test_a_second_collector_is_refused_and_reported_who_is_there(
    config: Configuration, until: Until
) -> None:
    with collecting(config, until) as first:
        second = Collector(config)
        assert second.process.wait(60) == 2
        assert f"another collector is running here: PID {first.process.pid}" in second.said


def test_the_tail_shows_the_present_to_its_owner_alone(
    config: Configuration, rings: Path, until: Until, toml: Path
) -> None:
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    with collecting(config, until, "--config", str(toml)):
        assert socket_path(config.run_dir).stat().st_mode & 0o777 == 0o600
        ring.append(operations(1, 3, unfinished=1))
        until(lambda: b"llama" in ask(config, Request("hello")))
        answer = ask(config, Request("digest", job="llama"))
        assert b'{"part": "ops", "rows": 3' in answer
        assert answer.rstrip().endswith(b"}}")
        again = ask(config, Request("digest", job="llama"))
        assert again.count(b'{"part": "ops", "rows": 3') == 1
        injected = ask(config, Request("digest", job="it's'; DROP TABLE ops"))
        assert b'{"part": "ops"' not in injected
        assert b'{"end"' in injected
        (rings / "garbage.ring").write_bytes(bytes(10_000))
        until(lambda: b"not a ring of oncall" in ask(config, Request("hello")))


def test_clients_that_talk_nonsense_or_say_nothing_hold_up_nobody(
    config: Configuration, rings: Path, until: Until, toml: Path
) -> None:
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    with collecting(config, until, "--config", str(toml)) as collector:
        silent = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for client in silent:
            client.connect(str(socket_path(config.run_dir)))
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(30)
            client.connect(str(socket_path(config.run_dir)))
            client.sendall(b"GET / HTTP/1.1\r\n")
            assert b'{"error"' in client.recv(1000)
        ring.append(operations(1, 100))
        until(lambda: _drained(ring))
        until(lambda: b"llama" in ask(config, Request("hello")))
        for client in silent:
            client.close()
        assert collector.end() == 0


def test_sighup_reads_the_configuration_again(
    config: Configuration, until: Until, toml: Path
) -> None:
    with collecting(config, until, "--config", str(toml)) as collector:
        toml.write_text('seal_every = "1 s"\nkeep_free = "0 B"\n[gpus]\nevery = "3 s"\n')
        collector.process.send_signal(signal.SIGHUP)
        until(lambda: "a shard every 1 s" in collector.said)
        assert "warning: [gpus] every: restart the collector to apply the change" in collector.said
        toml.write_text("seal_evry = 1\n")
        collector.process.send_signal(signal.SIGHUP)
        until(lambda: "configuration not reloaded" in collector.said)
        assert "unknown option `seal_evry`; did you mean `seal_every`?" in collector.said
        assert collector.process.poll() is None


def test_a_place_that_cannot_be_is_said_plainly(config: Configuration, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = Collector(config, "--data-dir", str(tmp_path / "file" / "data"))
    assert refused.process.wait(60) == 2
    assert "cannot be created: Not a directory" in refused.said
    assert "Traceback" not in refused.said


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_survived(
    config: Configuration, rings: Path, until: Until, sealed_rows: Rows, tmp_path: Path
) -> None:
    toml = tmp_path / "small.toml"
    toml.write_text('keep_free = "0 B"\nbacklog = "1 MiB"\nseal_every = "1 h"\n')
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(config.data_dir)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"no small disk here: {mounted.stderr.strip()}")
    ballast = config.data_dir / "ballast"
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    try:
        with collecting(config, until, "--config", str(toml)) as collector:
            ring.append(operations(1, 100))
            until(lambda: _drained(ring))
            ask(config, Request("digest", job="llama"))
            _fill(ballast)
            number = 101
            while "not writing" not in collector.said:
                ring.append(operations(number, 5000))
                number += 5000
                until(lambda: _drained(ring))
                ask(config, Request("digest", job="llama"))
                assert number < 10**6
            # It still answers, about the newest rows.
            until(lambda: b"llama" in ask(config, Request("hello")))
            ballast.unlink()
            until(lambda: "writing again" in collector.said)
            ring.append(operations(number, 10))
            until(lambda: _drained(ring))
            assert collector.end() == 0
        assert sealed_rows(f"SELECT count(*) FROM ops WHERE seq <= 100 OR seq >= {number}") == [
            (110,)
        ]
        ((errors,),) = sealed_rows(
            "SELECT count(*) FROM collectors WHERE source = 'collector' AND error IS NOT NULL"
        )
        assert errors
    finally:
        subprocess.run(["umount", "-l", str(config.data_dir)], check=True)


def _fill(path: Path) -> None:
    """Take all the room there is."""
    with path.open("wb", buffering=0) as file:
        for size in (65_536, 4096):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                pass


def test_a_collector_greets_at_once_however_long_an_answer_takes(
    config: Configuration, rings: Path
) -> None:
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    ring.append(operations(1, 10))
    make_folders(config)
    agent, recorder = build(config, Log())
    agent.step()
    tail = listen(config, agent, recorder, Log())
    with ExitStack() as stack:
        stack.callback(tail.close)
        stack.callback(agent.finish)
        for _ in range(MOST_ANSWERS):  # nobody turns the loop: these wait
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(socket_path(config.run_dir)))
            client.sendall(Request("digest", job="llama").line())
        began_s = time.monotonic()
        assert b'"llama": {"last_ns"' in ask(config, Request("hello"))
        assert time.monotonic() - began_s < 5

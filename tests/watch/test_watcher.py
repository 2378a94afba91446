"""A watch of real logs, of a stand-in for RAS, and of the demo's job on real collectors."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError

import pytest
from tests.fleet.tree.gateways import DIES, Counted, Gateways
from tests.torture.disks import empty, fill, small_disk
from tests.torture.outcome import Skipped
from tests.watch.servers import Receiver, receiving
from typer.testing import CliRunner

from oncall.cli.commands import app
from oncall.core.errors import BadInput, UsageError
from oncall.core.units import NS_PER_S
from oncall.fleet.reach import Reach
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.watch.course import Open
from oncall.watch.keeping import WatchFolder
from oncall.watch.metrics import MetricsServer, Seen, exposition, write_textfile
from oncall.watch.settings import WatchSettings, read_watch_settings
from oncall.watch.sources import Source, WatchedNodes, WatchedRecordings
from oncall.watch.watcher import Judging, Watcher

LOG = Path(__file__).parents[2] / "fixtures" / "logs" / "slurm-4711.out"
LOGS_RULES = load_rulebooks([shipped_folder() / "faults.yaml"])


class Time:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now_ns = time.time_ns()

    def __call__(self) -> int:
        return self.now_ns


@contextmanager
def log_watch(
    tmp_path: Path, log: Path, settings: WatchSettings, clock: Time
) -> Iterator[tuple[Watcher, Callable[[], list[str]]]]:
    """A watch of that log, and the lines that it said so far."""
    said: list[str] = []
    folder = WatchFolder(tmp_path / "watch")
    source = WatchedRecordings(
        "llama", folder.path, logs=[log], standstill_ns=settings.standstill_ns
    )
    with ExitStack() as stack:
        stack.callback(folder.close)
        stack.callback(source.close)
        yield (
            Watcher(source, folder, settings, Judging(LOGS_RULES), clock=clock, say=said.append),
            lambda: said,
        )


def bus_settings(tmp_path: Path, bus: Receiver) -> WatchSettings:
    path = tmp_path / "config.toml"
    path.write_text(f'[watch]\n[watch.notify.bus]\nkind = "cloudevents"\nurl = "{bus.url}"\n')
    return read_watch_settings(path)


def kinds(bus: Receiver) -> list[str]:
    return [event["type"].rpartition(".")[2] for _, _, event in bus.received]


def test_a_log_that_fails_over_rotation_and_restart(tmp_path: Path) -> None:
    lines, clock = LOG.read_text().splitlines(keepends=True), Time()
    first_error = next(number for number, line in enumerate(lines) if "KeyError" in line)
    log = tmp_path / "job" / "slurm.out"
    log.parent.mkdir()
    log.write_text("".join(lines[: first_error // 2]))
    with receiving(Receiver()) as bus:
        settings = bus_settings(tmp_path, bus)
        with log_watch(tmp_path, log, settings, clock) as (watcher, _):
            watcher.look()
            log.rename(log.with_suffix(".1"))
            log.write_text("".join(lines[first_error // 2 :]))
            clock.now_ns += 30 * NS_PER_S
            watcher.look()
            assert kinds(bus) == []
            clock.now_ns += 10 * NS_PER_S
            watcher.look()
            assert kinds(bus) == ["opened"]
        with log_watch(tmp_path, log, settings, clock) as (watcher, _):
            for _ in range(3):
                clock.now_ns += 30 * NS_PER_S
                watcher.look()
    assert kinds(bus) == ["opened"]
    event = bus.received[0][2]
    assert event["data"]["headline"].startswith("A process failed first: rank 5")
    assert event["data"]["diagnosis"]["findings"][0]["verdict"] == "FIRST_ERROR"
    assert Path(event["data"]["file"]).exists()


def test_a_log_that_stops_growing_and_goes_on(tmp_path: Path) -> None:
    log, clock = tmp_path / "train.log", Time()

    def train(first: int, end: int) -> None:
        with log.open("a") as file:
            file.writelines(
                f"[2026-11-23 03:{number // 60:02}:{number % 60:02}] iteration {number:8}/  5000 | "
                "consumed samples: 10 | elapsed time per iteration (ms): 1000.0 | loss: 1.0E+00\n"
                for number in range(first, end)
            )

    with receiving(Receiver()) as bus:
        settings = replace(bus_settings(tmp_path, bus), quiet_ns=10**12)
        train(1, 40)
        with log_watch(tmp_path, log, settings, clock) as (watcher, said):
            for _ in range(4):
                clock.now_ns += 90 * NS_PER_S
                watcher.look()
            clock.now_ns += 30 * NS_PER_S
            watcher.look()
            assert kinds(bus) == ["opened"], said()
            assert "nothing has been written for" in bus.received[0][2]["data"]["headline"]
            clock.now_ns = time.time_ns()
            for step in range(40, 100, 10):
                clock.now_ns += 60 * NS_PER_S
                train(step, step + 10)
                watcher.look()
            ends = [line for line in said() if "the log ends after step" in line]
            assert len(ends) == 1, ends  # each look at another step, which is no news
    assert kinds(bus) == ["opened", "closed"]
    assert "moves again after" in bus.received[1][2]["data"]["headline"]


def ras(counts: int) -> str:
    ranks = [
        {
            "rank": rank,
            "host": f"gpu{rank:03}",
            "pid": 100 + rank,
            "cuda_dev": 0,
            "nvml_dev": 0,
            "collective_counts": {"AllReduce": counts + (rank != 1)},
            "status": {"init_state": 0, "async_error": 0, "abort_flag": 0},
        }
        for rank in range(4)
    ]
    comm = {"hash": "0x12ab", "size": 4, "ranks": ranks, "missing_ranks": []}
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(1_795_400_000 + counts))
    return json.dumps({"nccl_version": "2.29.2", "timestamp": stamp, "communicators": [comm]})


def test_equal_counts_of_ras_count_after_a_standstill(tmp_path: Path) -> None:
    """Looks that are nearer to one another than that show one answer alone."""
    answers = iter([ras(10), ras(10), ras(10), "refused"])

    def ask(host: str, port: int) -> str:
        assert (host, port) == ("gpu000", 28028)
        if (answer := next(answers)) == "refused":
            raise BadInput("ras://gpu000:28028", "connection refused")
        return answer

    source = WatchedRecordings(
        "llama", tmp_path, ras="gpu000", standstill_ns=300 * NS_PER_S, ask=ask
    )
    counts = []
    for at_s in (1000, 1100, 1300):
        with source.look(at_s * NS_PER_S) as incident:
            rows = incident.con.execute("SELECT count(*) FROM recordings").fetchall()
            counts.append(rows[0][0])
    assert counts == [1, 1, 2]
    with pytest.raises(BadInput, match="connection refused"):
        source.look(1400 * NS_PER_S)
    source.close()


def test_two_watches_of_one_job(tmp_path: Path) -> None:
    first = WatchFolder(tmp_path)
    with pytest.raises(UsageError, match="another watch is running here: PID"):
        WatchFolder(tmp_path)
    first.close()
    WatchFolder(tmp_path).close()


def test_a_source_that_is_blind_is_said_and_survived(tmp_path: Path) -> None:
    class Blind(Source):
        job = "llama"

        def look(self, now_ns: int, *, quick: bool = False) -> object:  # type: ignore[override]  # noqa: ARG002
            raise UsageError(f"no host answered at {now_ns // NS_PER_S // 10**6}")

        def close(self) -> None:
            pass

    folder, said = WatchFolder(tmp_path), list[str]()
    watcher = Watcher(Blind(), folder, WatchSettings(), Judging(()), say=said.append)
    watcher.look()
    watcher.look()
    folder.close()
    assert len(said) == 1 and "no host answered" in said[0]
    assert 'oncall_watch_blind{job="llama"} 1' in exposition(watcher.seen)


def test_a_full_disk_silences_nobody(tmp_path: Path) -> None:
    lines, clock = LOG.read_text(), Time()
    log = tmp_path / "job" / "slurm.out"
    log.parent.mkdir()
    log.write_text(lines)
    try:
        disk = small_disk(tmp_path / "watch", "size=64k")
        with receiving(Receiver()) as bus, disk as place:
            settings = bus_settings(tmp_path, bus)
            with log_watch(tmp_path, log, settings, clock) as (watcher, said):
                fill(place)
                for _ in range(4):
                    watcher.look()
                    clock.now_ns += 30 * NS_PER_S
                assert kinds(bus) == ["opened"]
                assert bus.received[0][2]["data"]["file"] == ""
                assert len([line for line in said() if "goes on from memory" in line]) == 1
                empty(place)
                watcher.look()
                assert "keeps its state on disk again" in said()[-1]
            with log_watch(tmp_path, log, settings, clock) as (watcher, _):
                watcher.look()
            assert kinds(bus) == ["opened"]
    except Skipped as why:
        pytest.skip(str(why))


@pytest.mark.parametrize("state", ["[" * 100_000, "{", '{"version": 1}'])
def test_a_state_that_makes_no_sense_is_put_aside(
    state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state.json").write_text(state)
    folder = WatchFolder(tmp_path)
    assert folder.load("llama").state.job == "llama"
    folder.close()
    assert "put aside as state.damaged" in capsys.readouterr().err
    assert (tmp_path / "state.damaged").read_text() == state


def test_what_a_watch_keeps_is_for_its_owner_and_its_group(tmp_path: Path) -> None:
    log = tmp_path / "slurm.out"
    log.write_text(LOG.read_text())
    place = tmp_path / "of" / "watch"
    command = [sys.executable, "-m", "oncall.cli.main", "watch", "--once", "--folder", str(place)]
    subprocess.run([*command, "--logs", str(log)], check=True, umask=0)
    assert place.stat().st_mode & 0o777 == 0o750
    assert (place / "state.json").stat().st_mode & 0o777 == 0o640


def test_metrics_are_served_and_written(tmp_path: Path) -> None:
    opened = Open("i", 5 * NS_PER_S, "critical", 1, 5 * NS_PER_S, ())
    seen = Seen('a"b\\c\nd', 10 * NS_PER_S, incident=opened, sent={"slack": 2})
    text = exposition(seen)
    assert 'oncall_incident_open{job="a\\"b\\\\c d"} 1.0' in text
    assert 'oncall_notifications_sent_total{job="a\\"b\\\\c d",target="slack"} 2.0' in text
    write_textfile(tmp_path / "oncall.prom", text)
    assert [path.name for path in tmp_path.iterdir()] == ["oncall.prom"]
    alive = [True, False]
    server = MetricsServer("127.0.0.1", 0, lambda: seen, lambda: alive[0])
    url = f"http://127.0.0.1:{server.port}"
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        assert answer.read().decode() == text
    asked = urllib.request.Request(f"{url}/metrics", headers={
        "Accept": "application/openmetrics-text", "Accept-Encoding": "gzip"})  # fmt: skip
    with urllib.request.urlopen(asked) as answer:
        assert gzip.decompress(answer.read()).decode().endswith("# EOF\n")
    assert urllib.request.urlopen(f"{url}/healthz").status == 200
    alive.pop(0)
    with pytest.raises(HTTPError, match="503") as raised:
        urllib.request.urlopen(f"{url}/healthz")
    raised.value.close()
    server.close()


def test_dry_run_prints_and_keeps_nothing(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        '[watch]\nconfirm = "100ms"\n[watch.notify.bus]\nkind = "cloudevents"\n'
        'url = "http://127.0.0.1:1/"\n'
    )
    log = tmp_path / "job.out"
    log.write_bytes(LOG.read_bytes())
    options = ["--config", str(config), "--folder", str(tmp_path / "state"), "--logs", str(log)]
    shown = CliRunner().invoke(app, ["watch", "--dry-run", "--once", *options])
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert "A process failed first: rank 5" in shown.stderr
    assert not (tmp_path / "state").exists()
    for _ in range(2):  # as cron would
        shown = CliRunner().invoke(app, ["watch", "--once", *options])
        assert shown.exit_code == 0, shown.output
    assert "opened " in shown.stderr and "trying again in" in shown.stderr
    shown = CliRunner().invoke(app, ["watch", "--send-test", "--dry-run", "--config", str(config)])
    assert "a test of `oncall watch`" in shown.stdout
    shown = CliRunner().invoke(app, ["watch", "--send-test", "--config", str(config)])
    assert shown.exit_code == 2 and "bus: 127.0.0.1:1 cannot be reached" in shown.stderr


def test_a_gateway_that_fails_is_reported_once_until_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncall.fleet.branch.GATEWAY_RETRY_S", 0.0)
    folders = {name: tmp_path / "nodes" / name for name in ("gpu1", "gpu2")}
    for place in folders.values():
        place.mkdir(parents=True)
    gateways, said = Gateways(folders, {"gw2": DIES}), list[str]()
    reach = Reach(Counted(folders), tuple(folders), "test", tree=gateways.tree())
    with ExitStack() as stack:
        source = WatchedNodes(reach, "llama", LOGS_RULES)
        stack.callback(source.close)
        folder = WatchFolder(tmp_path / "watch")
        stack.callback(folder.close)
        settings = WatchSettings()
        watcher = Watcher(source, folder, settings, Judging(LOGS_RULES), say=said.append)
        watcher.look()
        watcher.look()
        assert 'oncall_gateways_lost{job="llama"} 1' in exposition(watcher.seen)
        gateways.programs.clear()
        watcher.look()
        assert 'oncall_gateways_lost{job="llama"} 0' in exposition(watcher.seen)
    assert [line for line in said if line.startswith("gateway")] == [
        "gateway gw2: sh ended with status 1: without a message; its nodes are asked directly",
        "gateway gw2 is back",
    ]


@pytest.mark.slow
def test_the_demos_job_hangs_and_somebody_is_notified(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a lock, with the settings as they are: what is proven does not wait for five minutes."""
    from tempfile import TemporaryDirectory

    import oncall.demo.cluster
    from oncall.demo.cluster import Cluster
    from oncall.demo.layout import Layout
    from oncall.demo.processes import Processes
    from oncall.fleet.reach import reach_fleet

    monkeypatch.setattr(oncall.demo.cluster, "_COLLECT", 'sources = ["rings", "host_processes"]\n')
    rulebooks = load_rulebooks([shipped_folder()])
    with ExitStack() as stack:
        # The path of a Unix socket is limited to about a hundred characters.
        place = Path(stack.enter_context(TemporaryDirectory(prefix="oncall-watch-")))
        bus = stack.enter_context(receiving(Receiver()))
        (place / "logs").mkdir()
        processes = stack.enter_context(Processes(place / "logs"))
        cluster = Cluster(place, Layout.simulated(place, 8, 4), processes)
        cluster.start_collectors()
        cluster.start_ranks()
        cluster.wait_for_steps(25, 60)
        source = WatchedNodes(reach_fleet(f"local:{place}/node*", None), None, rulebooks)
        stack.callback(source.close)
        folder = WatchFolder(place / "watch")
        stack.callback(folder.close)
        settings, judging = bus_settings(place, bus), Judging(rulebooks)
        watcher = Watcher(source, folder, settings, judging, stacks=source.stacks)
        watcher.look()
        assert source.job == "demo" and kinds(bus) == []
        cluster._give_order("locked,comm=dp,rank=5\n")
        deadline = time.monotonic() + 200

        def over(wait_s: float) -> bool:
            time.sleep(wait_s)
            return bool(bus.received) or time.monotonic() > deadline

        watcher.run(over)
        assert kinds(bus) == ["opened"]
        sent = bus.received[0][2]["data"]
        assert "rank 5 on node2" in sent["headline"]
        assert "rank 5 has not moved (state S, in futex" in sent["summary"]
        assert "8 GPUs wait for rank 5 on node2" in sent["summary"]
        (hung,) = [one for one in sent["diagnosis"]["findings"] if one["verdict"] == "H1"]
        assert hung["lost_gpu_seconds"] > 8
        assert Path(sent["file"]).exists()
        metrics = exposition(watcher.seen)
        assert 'verdict="H1"' in metrics
        assert 'oncall_lost_gpu_seconds_total{cause="hang.H1",job="demo"}' in metrics

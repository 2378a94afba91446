"""`oncall watch`: watch a job, and notify when it hangs or runs slow."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.options import (
    HostsOption,
    InventoryOption,
    ParamOption,
    RulesOption,
    SiteRulesOption,
    SlurmJobOption,
    rulebooks_in_force,
    with_slurm_job,
)
from oncall.core.errors import OncallError, UsageError

if TYPE_CHECKING:
    from oncall.fleet.stacks import TakenStacks
    from oncall.watch.announcement import Announcement
    from oncall.watch.metrics import Seen
    from oncall.watch.settings import WatchSettings
    from oncall.watch.sources import Source
    from oncall.watch.targets.target import Target


def watch(
    job: Annotated[
        str | None, typer.Option(metavar="NAME", help="Job to watch, if there are several.")
    ] = None,
    hosts: HostsOption = None,
    slurm_job: SlurmJobOption = None,
    inventory: InventoryOption = None,
    logs: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH", help="A growing log, or a folder of them, instead of nodes. Repeatable."
        ),
    ] = None,
    ras: Annotated[
        str | None,
        typer.Option(metavar="HOST[:PORT]", help="NCCL RAS of the job, instead of nodes."),
    ] = None,
    recordings: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="Folder in which recordings may appear, such as Flight Recorder dumps; those of "
            "the last ten minutes are read. Repeatable.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with [watch] instead of the configuration files."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where to keep the state and the incidents. Default: watch/NAME in the data "
            "folder.",
        ),
    ] = None,
    rules: RulesOption = None,
    site_rules: SiteRulesOption = True,
    param: ParamOption = None,
    once: Annotated[
        bool, typer.Option("--once", help="Look once and exit: for cron. The state is kept.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print notifications instead of sending them; keep nothing."
        ),
    ] = False,
    send_test: Annotated[
        bool, typer.Option("--send-test", help="Send a test to every target of [watch], and exit.")
    ] = False,
) -> None:
    """Watch a job, and notify when it hangs or runs slow.

    Looks every 30 s, and soon where the job falls silent, which it asks the nodes every 2 s. What
    one look shows a second one confirms; of a stopped job with the stacks of its living processes.
    Then the incident is saved and one notification is sent. A second one follows if the verdict
    changes, a last one when the job moves again. Targets and durations are set in [watch] of
    config.toml.

    \b
    Examples:
      oncall watch --job llama --hosts gpu[001-512]
      oncall watch --logs slurm-4711.out --job llama
      oncall watch --send-test

    Runs until SIGTERM or Ctrl-C; a restarted watch continues where it stopped.
    """
    from oncall.cli.options import parse_overrides
    from oncall.watch.settings import read_watch_settings

    os.umask(0o027)  # state and incidents are the owner's and its group's
    settings = read_watch_settings(config)
    hosts = with_slurm_job(hosts, slurm_job)
    if dry_run:
        settings = _printing(settings)
    if send_test:
        _send_test(settings, job or "job")
        return
    read = rulebooks_in_force(rules, site_rules, parse_overrides(param or ()))

    from oncall.fleet.configuration import read_configuration
    from oncall.fleet.inventory import find_hosts, no_hosts
    from oncall.fleet.reach import reach_fleet
    from oncall.watch.keeping import WatchFolder
    from oncall.watch.sources import WatchedNodes, WatchedRecordings, stacks_now
    from oncall.watch.watcher import Judging, Watcher

    with ExitStack() as stack:
        if dry_run:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oncall-dry-")))
        else:
            place = folder or _default_folder(job, logs or [], ras)
        kept = WatchFolder(place)
        stack.callback(kept.close)
        from_nodes = not (logs or ras or recordings)
        if from_nodes and find_hosts(hosts, inventory, read_configuration()) is None:
            raise UsageError(f"{no_hosts()}; or watch without nodes: {_WITHOUT_NODES}")
        source = (
            WatchedNodes(reach_fleet(hosts, inventory), job, read.in_force)
            if from_nodes
            else WatchedRecordings(
                job or _named(logs or []),
                kept.path,
                logs=logs or (),
                ras=ras,
                recordings=recordings or (),
                standstill_ns=settings.standstill_ns,
            )
        )
        stack.callback(source.close)
        stacks: Callable[[str], TakenStacks] | None = None  # of the job, if nodes are named
        if isinstance(source, WatchedNodes):
            stacks = source.stacks
        elif hosts is not None or inventory is not None:
            stacks = partial(stacks_now, partial(reach_fleet, hosts, inventory))
        watcher = Watcher(
            source,
            kept,
            settings,
            Judging(read.in_force, read.skipped),
            stacks=stacks,
            say=_saying(settings, source),
        )
        if settings.metrics is not None and not once:
            _serve_metrics(settings.metrics, lambda: watcher.seen, watcher.alive, stack)
        if once:
            watcher.look()
            return
        with _stopped_by_signals() as stop:
            watcher.run(stop.wait)


_WITHOUT_NODES = "--logs slurm-4711.out, --ras HOST or --recordings DIR"


def _named(logs: list[Path]) -> str:
    """A job is called after the folder of its logs."""
    if not logs:
        return "job"
    place = logs[0].resolve()
    return (place if place.is_dir() else place.parent).name or "job"


def _default_folder(job: str | None, logs: list[Path], ras: str | None) -> Path:
    from oncall.core.printable import file_name
    from oncall.node.store.places import data_dir

    name = job or (str(logs[0].resolve()) if logs else ras) or "the-only-job"
    return data_dir() / "watch" / file_name(name.strip("/"))


def _serve_metrics(
    address: str, seen: Callable[[], Seen], alive: Callable[[], bool], stack: ExitStack
) -> None:
    from oncall.watch.metrics import MetricsServer
    from oncall.watch.settings import address as parsed

    host, port = parsed(address)
    try:
        server = MetricsServer(host, port, seen, alive)
    except OSError as error:
        raise UsageError(f"`metrics` in [watch]: {address}: {error.strerror}") from error
    stack.callback(server.close)


def _saying(settings: WatchSettings, source: Source) -> Callable[[str], None]:
    """Where a line of the watch goes: the terminal, and collectors of OpenTelemetry."""
    from oncall.watch.targets.otlp import Otlp
    from oncall.watch.watcher import print_line

    collectors = [one.target for one in settings.notify.values() if isinstance(one.target, Otlp)]

    def say(text: str) -> None:
        print_line(text)
        for one in collectors:
            one.log(source.job, text)

    return say


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set; a second Ctrl-C interrupts at once."""
    stop = threading.Event()

    def end(number: int, frame: object) -> None:  # noqa: ARG001
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ---------------------------------------------------------------------- notifying


@dataclass(frozen=True)
class _Printed:
    """A target of which only what it would be sent is printed."""

    target: Target
    repeats: bool = False

    @property
    def name(self) -> str:
        return self.target.name

    def send(self, announcement: Announcement) -> None:
        sys.stdout.write(f"── {announcement.kind}, to {self.name} ──\n{self.shown(announcement)}\n")
        sys.stdout.flush()

    def shown(self, announcement: Announcement) -> str:
        return self.target.shown(announcement)


def _printing(settings: WatchSettings) -> WatchSettings:
    """The same settings, with targets that print; without any, one that shows the message."""
    from oncall.watch.settings import NotifyTarget
    from oncall.watch.targets.apprise_target import Apprise

    targets = settings.notify or {"nobody": NotifyTarget(Apprise("nobody", ""))}
    printed = {name: replace(one, target=_Printed(one.target)) for name, one in targets.items()}
    return replace(settings, notify=printed, textfile=None, metrics=None, saves=False)


def _send_test(settings: WatchSettings, job: str) -> None:
    """Send a test to all targets; raises UsageError with those that did not accept it."""
    from oncall.watch.announcement import of_test

    if not settings.notify:
        raise UsageError("no targets: add [watch.notify.NAME] to config.toml")
    news, failed = of_test(job, time.time_ns()), []
    for name, one in settings.notify.items():
        try:
            one.target.send(news)
        except OncallError as error:
            failed.append(f"{name}: {error}")
        else:
            print(f"{name}: accepted", file=sys.stderr)
    if failed:
        raise UsageError("; ".join(failed))

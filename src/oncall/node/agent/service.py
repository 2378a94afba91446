"""The collector as a process: its folders, locks and signals, and the order in which it starts and
stops.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from oncall.core.errors import OncallError, UsageError
from oncall.node.agent.agent import Agent
from oncall.node.agent.lock import FolderLock
from oncall.node.agent.recorder import Prepare, Recorder
from oncall.node.agent.tail import Tail
from oncall.node.common.config import Configuration, load
from oncall.node.common.declaration import Bookmarks, declared
from oncall.node.common.log import Log
from oncall.node.common.source import FailedSource, Source, read_clock, say_bug
from oncall.node.rings.unrecorded import open_to_all
from oncall.node.store.answer import answer
from oncall.node.store.bookmarks import recall, under
from oncall.node.store.places import rings_dir, socket_path
from oncall.node.store.shard_digest import ShardDigests


def make_sources(config: Configuration, bookmarks: Bookmarks) -> list[Source]:
    """The sources that the configuration names, continuing where their predecessors stopped. A
    source that cannot be created reports the reason in `collectors`; the others run."""
    surroundings = config.surroundings()
    sources: list[Source] = []
    for name in config.sources:
        own = replace(surroundings, bookmarks=under(f"{name}/", bookmarks))
        try:
            sources.append(declared()[name].make(own, config.source_options.by_source[name]))
        except (OncallError, OSError) as error:
            sources.append(FailedSource(name, str(error)))
        except Exception as error:  # a bug in one source must not cost us the others
            sources.append(FailedSource(name, say_bug(error)))
    return sources


def serve(config_path: Path | None, overrides: Mapping[str, Any], *, once: bool = False) -> None:
    """Collect until SIGTERM or SIGINT; with `once` drain, seal and leave.

    Raises UsageError or BadInput if it cannot start: a folder that cannot be used, another
    collector at work, a wrong configuration.
    """
    config = load(config_path, overrides)
    os.umask(0o027)  # evidence is the owner's and its group's
    log = Log()
    with ExitStack() as stack:
        make_folders(config)
        open_rings(rings_dir(config.run_dir), log)
        for folder in {config.data_dir.resolve(), config.run_dir.resolve()}:
            stack.callback(FolderLock(folder).release)
        agent, recorder = build(config, log)
        if once:
            agent.once()
            return
        tail = listen(config, agent, recorder, log)
        stack.callback(tail.close)
        _follow_signals(agent, lambda: load(config_path, overrides), log)
        spare_garbage_collector()
        stack.callback(gc.unfreeze)  # at its end Python takes apart what it sees, in order
        log.info(f"collecting on {config.node}: {config.run_dir} into {config.data_dir}")
        agent.run()
        left = sum(batch.rows for batch in recorder.waiting)
        if recorder.problem or left:
            log.error(f"stopped; {left:,} rows could not be written: {recorder.problem}")
        else:
            log.info("stopped; all rows are sealed")


def spare_garbage_collector() -> None:
    """Run Python's garbage collector rarely, and never over the objects that exist at the start:
    otherwise it would go through all modules every few hundred rows, a fifth of the collector's CPU
    time. The collector's garbage is almost never in cycles, so reference counting frees it at once.
    """
    import numpy.ma  # noqa: F401  (so does every commit)

    import oncall.analysis.rounds.own_time  # noqa: F401  (every seal needs it: then it is there, too)

    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


def build(
    config: Configuration, log: Log, prepare: Prepare | None = None
) -> tuple[Agent, Recorder]:
    """The parts of a collector, connected."""
    recorder = Recorder(config, log, prepare or ShardDigests().prepare)
    recorder.commit(read_clock().realtime_ns)  # recovers what a predecessor left behind
    sources = make_sources(config, recall(config.data_dir, config.node))
    return Agent(config, sources, recorder, log), recorder


def listen(config: Configuration, agent: Agent, recorder: Recorder, log: Log) -> Tail:
    """The collector's socket, ready to answer."""
    return Tail(
        socket_path(config.run_dir),
        recorder,
        agent.present,
        lambda: agent.greeting,
        answer,
        lambda: agent.problems,
        log,
        group=config.socket_group,
    )


def make_folders(config: Configuration) -> None:
    """Make what is missing of the data and run folders. Raises UsageError if that cannot be."""
    rings = rings_dir(config.run_dir)
    for folder, mode in ((config.data_dir, 0o750), (config.run_dir, 0o755), (rings, 0o1777)):
        try:
            if not folder.is_dir():
                folder.mkdir(parents=True)
                folder.chmod(mode)
        except OSError as error:
            raise UsageError(
                f"{folder}: cannot be created: {error.strerror}; choose another folder "
                "with --data-dir or --run-dir"
            ) from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UsageError(f"{folder}: cannot be written by this user")


def open_rings(rings: Path, log: Log) -> None:
    """As root, let jobs of every user record: the first job may have created the folder for its own
    user alone."""
    if os.geteuid() != 0:
        return  # who is not root reads no rings of others anyway
    try:
        if open_to_all(rings):
            log.warning(f"{rings}: opened to the jobs of every user (mode 1777)")
    except OSError as error:
        log.error(f"{rings}: cannot be opened to jobs of every user: {error.strerror}")


def _follow_signals(agent: Agent, reload: Callable[[], Configuration], log: Log) -> None:
    def stop(*_: object) -> None:
        agent.stop()

    def read_again(*_: object) -> None:
        try:
            agent.reconfigure(reload())
        except OncallError as error:
            log.error(f"configuration not reloaded: {error}")

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, read_again)

"""Where a watch looks: the nodes of a job, or its logs, NCCL RAS and recordings that appear."""

from __future__ import annotations

import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from oncall.console.cancellation import Task
from oncall.console.nodes import LoopThread, Nodes
from oncall.core.errors import BadInput, UsageError
from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident
from oncall.fleet.merge import add_rows, measured_rows
from oncall.fleet.reach import Reach
from oncall.fleet.stacks import TakenStacks, fleet_stacks
from oncall.fleet.transport import opened
from oncall.importers import detect
from oncall.importers.files import walk
from oncall.importers.logs.following import Followed
from oncall.importers.ras.client import DEFAULT_PORT, fetch
from oncall.node.store.wire import Request
from oncall.rules.engine.starts import started_communicators
from oncall.rules.language.rulebook import Rulebook
from oncall.watch.silence import LogWriters, Silence

SINCE_NS = 600 * NS_PER_S  # of evidence in a look


# What says whether a job is stopped: neither readings of devices nor traffic nor training tasks,
# which cost a node most.
_OF_STOPS = (
    *("jobs", "ranks", "comms", "stacks", "recordings", "launches", "collectors"),
    *("host_processes", "host_events", "ops", "transfers", "op_channels"),
)


class Source(ABC):
    """Methods may block, and raise OncallError with why nothing is seen."""

    job: str
    lasting: bool = False

    @abstractmethod
    def look(self, now_ns: int, *, quick: bool = False) -> Incident:
        """The evidence now; `quick`: what shows whether the job is stopped is enough. The caller
        closes it."""

    def pulse(self) -> Mapping[str, int]:
        """What rises, by its name, whenever the job moves, where that can be asked between two
        looks; empty where it cannot."""
        return {}

    def silence(self, now_ns: int) -> Silence | None:  # noqa: ARG002
        """That the job itself has written nothing for too long."""
        return None

    def lost_gateways(self) -> Mapping[str, str]:
        """Gateways that failed at the last look, with the reason: nodes are asked directly."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Close connections and files."""


class WatchedNodes(Source):
    """The nodes of a job, over connections that stay."""

    def __init__(self, reach: Reach, job: str | None, rulebooks: Sequence[Rulebook]) -> None:
        self.job = job or ""
        self._nodes = Nodes(
            reach, lambda incident: started_communicators(incident, rulebooks), time.time_ns
        )
        self._folder = Path(tempfile.mkdtemp(prefix="oncall-watch-"))

    def look(self, now_ns: int, *, quick: bool = False) -> Incident:
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            since_ns = now_ns - SINCE_NS
            incident, gathered = self._nodes.gather(
                self.job or None, since_ns, None, Path(place), Task(), _OF_STOPS if quick else ()
            )
        self.job = gathered.job
        return incident

    def pulse(self) -> Mapping[str, int]:
        return self._nodes.pulse(self.job, self._folder / "pulse") if self.job else {}

    def stacks(self, job: str) -> TakenStacks:
        """Those of the job's processes, as `stacks_now` takes them. Raises UsageError."""
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            return self._nodes.stacks(_stacks_of(job), Path(place))

    def lost_gateways(self) -> Mapping[str, str]:
        return self._nodes.last.lost_gateways

    def close(self) -> None:
        self._nodes.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class WatchedRecordings(Source):
    """Logs that grow, NCCL RAS that is asked again and again, and folders of recordings, of which
    those written in the last ten minutes count."""

    def __init__(
        self,
        job: str,
        folder: Path,
        *,
        logs: Sequence[Path] = (),
        ras: str | None = None,
        recordings: Sequence[Path] = (),
        standstill_ns: int,
        ask: Callable[[str, int], str] = fetch,
    ) -> None:
        """`folder` keeps the answers of RAS, and who writes the logs. Raises BadInput where a log
        does not exist."""
        for path in logs:
            if not path.exists():
                raise BadInput(str(path), "no such file or folder")
        self.job = job
        self.lasting = bool(logs)
        self._logs = tuple(logs)
        self._ras = None if ras is None else _address(ras)
        self._recordings = tuple(recordings)
        self._standstill_ns = standstill_ns
        self._ask = ask
        self._room = Path(tempfile.mkdtemp(prefix="oncall-watch-"))
        self._followed: dict[Path, Followed] = {}
        self._answers = folder / "ras"
        self._writers = LogWriters(folder)

    def look(self, now_ns: int, *, quick: bool = False) -> Incident:  # noqa: ARG002
        places = [*self._grown_logs(), *self._compared_answers(now_ns)]
        places += self._new_recordings(now_ns)
        if not places:
            listed = ", ".join(map(str, (*self._logs, *self._recordings)))
            raise UsageError(f"nothing to read yet: {listed}")
        with Incident.empty().handed_on() as incident:
            detect.load(places, incident, self.job)
            return incident

    def silence(self, now_ns: int) -> Silence | None:
        newest_ns = 0
        for one in self._followed:
            with suppress(OSError):
                newest_ns = max(newest_ns, one.stat().st_mtime_ns)
        quiet_ns = now_ns - newest_ns
        if not newest_ns or quiet_ns < self._standstill_ns:
            return None
        return Silence(quiet_ns, self._writers.now(self._followed))

    def close(self) -> None:
        shutil.rmtree(self._room, ignore_errors=True)

    def _grown_logs(self) -> list[Path]:
        """The copies of all logs, with what was written since the last look."""
        for root in self._logs:
            for path in walk(root) if root.is_dir() else [root]:
                if path not in self._followed:
                    copy = (
                        self._room
                        / "logs"
                        / (path.relative_to(root) if path != root else path.name)
                    )
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    copy.touch()
                    self._followed[path] = Followed(path, copy)
        self._writers.look(self._followed)
        for log in self._followed.values():
            log.read_on()
        return [log.copy for log in self._followed.values() if log.copy.stat().st_size]

    def _compared_answers(self, now_ns: int) -> list[Path]:
        """The newest answer of RAS, and beside it one that is a standstill older, if there is one:
        counts that are equal for less are those of a checkpoint."""
        if self._ras is None:
            return []
        self._answers.mkdir(exist_ok=True)
        newest = self._answers / f"{now_ns}.json"
        newest.write_text(self._ask(*self._ras), encoding="utf-8")
        known = sorted(self._answers.glob("*.json"), key=lambda path: int(path.stem))
        old = [path for path in known if now_ns - int(path.stem) >= self._standstill_ns]
        for path in old[:-1]:
            path.unlink()
        return [*old[-1:], newest]

    def _new_recordings(self, now_ns: int) -> list[Path]:
        found = []
        for folder in self._recordings:
            for path in walk(folder):
                with suppress(OSError):
                    if path.is_file() and now_ns - path.stat().st_mtime_ns <= SINCE_NS:
                        found.append(path)
        return found


def _stacks_of(job: str) -> Request:
    """In two looks, and Flight Recorder dumps by the pipes of the processes."""
    return Request("stacks", job=job, native=True, looks=2, recorder=True)


def stacks_now(reached: Callable[[], Reach], job: str) -> TakenStacks:
    """The stacks of the job's processes on all nodes, in two looks, and Flight Recorder dumps by
    their pipes. Raises UsageError."""

    reach = reached()

    async def take() -> TakenStacks:
        async with opened(reach.transport) as transport:
            return await fleet_stacks(transport, reach.hosts, _stacks_of(job), tree=reach.tree)

    loop = LoopThread("stacks")
    try:
        return loop.run(take())
    finally:
        loop.close()


def stack_rows(taken: TakenStacks) -> dict[str, list[Any]]:
    """Stacks as columns; empty where there are none. Closes their incident."""
    with taken.incident:
        return measured_rows(taken.incident).get("thread_stacks", {})


def add_stacks(incident: Incident, rows: Mapping[str, list[Any]]) -> None:
    """Add stacks to an incident, as those of its job."""
    if not rows:
        return
    jobs = incident.con.execute("SELECT DISTINCT job FROM jobs").fetchall()
    of_job = {"job": [jobs[0][0]] * len(rows["job"])} if len(jobs) == 1 else {}
    add_rows(incident, {"thread_stacks": {**rows, **of_job}})


def _address(text: str) -> tuple[str, int]:
    """`gpu001`, `gpu001:28028` or `ras://gpu001` as host and port. Raises UsageError."""
    host, colon, port = text.removeprefix("ras://").partition(":")
    if not host or (colon and not (port.isdecimal() and int(port) < 65536)):
        raise UsageError(f"--ras {text}: expected HOST or HOST:PORT")
    return host, int(port) if port else DEFAULT_PORT

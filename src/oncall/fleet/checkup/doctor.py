"""Check whether nodes answer and record, and what to do if they do not.

Each host gets a `Checkup`: its transport and why, its status, and its problems, each with the
command to type next. Nothing is changed on a node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from oncall.core.units import NS_PER_S, format_bytes, format_duration
from oncall.fleet.command_prefix import PrefixTransport
from oncall.fleet.host import LATE_S
from oncall.fleet.outcome import ANSWERED, REASONS, HostError, Kind, Outcome
from oncall.fleet.transport import Clock, Connection, Transport
from oncall.node.store.wire import NO_COLLECTOR, Request

if TYPE_CHECKING:
    from oncall.fleet.ssh.choose import Choice
    from oncall.fleet.ssh.config import SshOptions

_STALE_NS = 300 * NS_PER_S  # a collector seals within a minute
_CLOCK_NS = NS_PER_S  # evidence is corrected for the offset; logs are not
_LEAST_FREE_BYTES = 2**30


@dataclass(frozen=True)
class Trouble:
    """A problem, and the command to type next, in which `{host}` is replaced by one host."""

    what: str
    next: str = ""


@dataclass(frozen=True)
class Checkup:
    """One host: `kind` and `message` say whether it answered, the other fields what."""

    host: str
    kind: Kind = "ok"
    message: str = ""
    transport: str = ""
    why: str = ""
    status: Mapping[str, Any] = field(default_factory=dict)
    clock: Clock | None = None
    slowness: str = ""  # as in Outcome
    troubles: tuple[Trouble, ...] = ()

    @property
    def well(self) -> bool:
        return not self.troubles

    @property
    def newest_age_ns(self) -> int | None:
        """Age of its newest sealed evidence, by its own clock."""
        newest = _inner(self.status, "shards").get("newest_ns")
        if not isinstance(newest, int) or self.clock is None:
            return None
        return max(0, self.clock.at_ns - newest)

    @property
    def free_bytes(self) -> int | None:
        free = self.status.get("free_bytes")
        return free if isinstance(free, int) else None

    @property
    def recording(self) -> dict[str, list[int]]:
        """The ranks that record now, by job."""
        jobs = _inner(_inner(self.status, "rings"), "jobs")
        return {str(job): list(ranks) for job, ranks in jobs.items() if isinstance(ranks, list)}

    def rings(self, state: str) -> int:
        """Number of rings `alive`, `ended` or `died`; number of records `dropped`."""
        count = _inner(self.status, "rings").get(state)
        return count if isinstance(count, int) else 0


class _Ssh(Protocol):
    """What a transport over SSH knows about the connection to a host."""

    async def resolve(self, host: str) -> SshOptions: ...

    async def choice(self, options: SshOptions) -> Choice: ...


# What to type if there is no answer.
_NEXT: Mapping[Kind, str] = {
    "timeout": "ssh -v {host} true",
    "refused": "ssh -v {host} true",
    "auth": "ssh-add -l; ssh -o BatchMode=yes {host} true",
    "hostkey": "ssh {host}",
    "no-agent": "ssh {host} 'command -v oncall'  # or set `command` under [fleet]",
    "version": "ssh {host} oncall --version; oncall --version",
    "protocol": 'ssh {host} oncall node query \'{{"ask":"hello"}}\'  # ~/.bashrc must be silent',
    "error": 'ssh {host} oncall node query \'{{"ask":"hello"}}\'',
}


async def check_fleet(
    transport: Transport,
    hosts: Sequence[str],
    progress: Callable[[Checkup], None] | None = None,
) -> list[Checkup]:
    """Check all hosts concurrently; `progress` is called with each result."""

    async def check(host: str) -> Checkup:
        checkup = await check_host(transport, host)
        if progress is not None:
            progress(checkup)
        return checkup

    return list(await asyncio.gather(*(check(host) for host in hosts)))


async def check_host(transport: Transport, host: str) -> Checkup:
    """Connect to a host and query its status."""
    checkup = Checkup(host)
    try:
        checkup = await _with_way(transport, checkup)
        async with transport.connect(host) as connection:
            checkup = await _asked(connection, checkup)
    except HostError as error:
        checkup = _unanswered(checkup, error.kind, str(error))
    else:
        checkup = replace(checkup, troubles=tuple(troubles(checkup)))
    if isinstance(transport, PrefixTransport):
        by_hand = transport.prefix.by_hand
        reached = (_reached_by(by_hand, one, checkup.kind) for one in checkup.troubles)
        return replace(checkup, troubles=tuple(reached))
    return checkup


def _reached_by(by_hand: str, trouble: Trouble, kind: Kind) -> Trouble:
    """The trouble, its command typed for a host that ssh does not reach."""
    if kind in ("timeout", "refused", "auth", "hostkey"):
        return replace(trouble, next=f"{by_hand} true")
    typed = trouble.next.replace("ssh {host} 'command", f"{by_hand} sh -c 'command")
    return replace(trouble, next=typed.replace("ssh {host}", by_hand))


def checkup_of(outcome: Outcome, clock: Clock | None, transport: str) -> Checkup:
    """The checkup of a host that a gather has queried."""
    checkup = Checkup(
        outcome.host,
        transport=transport,
        status=outcome.status,
        clock=clock,
        slowness=outcome.slowness,
    )
    if outcome.kind not in ANSWERED:
        return _unanswered(checkup, outcome.kind, outcome.message)
    return replace(checkup, troubles=tuple(troubles(checkup)))


def _unanswered(checkup: Checkup, kind: Kind, message: str) -> Checkup:
    reason = REASONS[kind] + (f": {message}" if message and message != REASONS[kind] else "")
    trouble = Trouble(reason, _NEXT.get(kind, ""))
    return replace(checkup, kind=kind, message=message, troubles=(trouble,))


def way_to(transport: Transport) -> str:
    """The transport in a word: ssh, srun, kubectl exec, local."""
    if isinstance(transport, PrefixTransport):
        return transport.prefix.program
    return "ssh" if hasattr(transport, "choice") else "local"


async def _with_way(transport: Transport, checkup: Checkup) -> Checkup:
    if isinstance(transport, PrefixTransport):
        return replace(checkup, transport=transport.prefix.program, why="asked of the scheduler")
    if not hasattr(transport, "choice"):
        return replace(checkup, transport="local", why="a folder of this machine")
    ssh: _Ssh = transport  # type: ignore[assignment]
    options = await ssh.resolve(checkup.host)
    choice = await ssh.choice(options)
    route = "".join(f", through {hop.host}" for hop in options.jumps)
    return replace(checkup, transport=choice.transport, why=choice.why + route)


async def _asked(connection: Connection, checkup: Checkup) -> Checkup:
    began_s = time.monotonic()
    try:
        async with asyncio.timeout(LATE_S):
            hello = Request("hello", images=True)
            status = (await connection.hello(hello, silence_s=LATE_S)).status
            clock = await connection.measure_clock()
    except TimeoutError:
        raise HostError("timeout", f"no answer within {LATE_S:g} s") from None
    seconds = time.monotonic() - began_s
    slowness = Outcome(checkup.host, "ok", seconds=seconds, status=status).slowness
    return replace(checkup, status=status, clock=clock, slowness=slowness)


def collector_problem(checkup: Checkup) -> str:
    """Why nothing is recorded on a host that answered: its collector does not run; else empty."""
    collector = _inner(checkup.status, "collector")
    if collector.get("alive") is True or checkup.transport == "local":
        return ""
    return str(collector.get("problem") or NO_COLLECTOR)


def troubles(checkup: Checkup) -> list[Trouble]:
    """The problems of a host that answered."""
    found: list[Trouble] = []
    alive = _inner(checkup.status, "collector").get("alive") is True
    if problem := collector_problem(checkup):
        found.append(Trouble(problem, "ssh {host} systemctl status oncall-collect"))
    if checkup.slowness:
        found.append(Trouble(checkup.slowness, "ssh {host} uptime"))
    age_ns = checkup.newest_age_ns
    if alive and checkup.recording and age_ns is not None and age_ns > _STALE_NS:
        found.append(
            Trouble(
                "a job is recording, but the newest shard is over 5 min old",
                "ssh {host} journalctl -u oncall-collect -n 50",
            )
        )
    if (
        checkup.clock is not None
        and abs(checkup.clock.offset_ns) - checkup.clock.error_ns > _CLOCK_NS
    ):
        found.append(Trouble("clock off by more than 1 s", "ssh {host} chronyc tracking"))
    if checkup.free_bytes is not None and checkup.free_bytes < _LEAST_FREE_BYTES:
        least = format_bytes(_LEAST_FREE_BYTES)
        found.append(Trouble(f"less than {least} of disk free for evidence", "ssh {host} df -h"))
    if checkup.rings("dropped"):
        found.append(
            Trouble(
                "rings filled up and records were dropped: the collector cannot keep up",
                "ssh {host} oncall hooks show  # then raise ONCALL_RING_RECORDS",
            )
        )
    for problem in _texts(_inner(checkup.status, "rings").get("unrecorded")):
        found.append(Trouble(problem, "ssh {host} oncall hooks show"))
    for problem in _texts(_inner(checkup.status, "rings").get("problems")):
        found.append(Trouble(f"cannot read a ring: {problem}", "ssh {host} oncall hooks show"))
    for problem in _texts(_inner(checkup.status, "images").get("problems")):
        found.append(Trouble(f"hooks: {problem}", "ssh {host} oncall doctor"))
    for gap in _texts(checkup.status.get("gaps")):
        found.append(Trouble(f"cannot read evidence: {gap}"))
    for problem in _texts(checkup.status.get("problems")):
        found.append(Trouble(problem, "ssh {host} journalctl -u oncall-collect -n 50"))
    return found


def summary(checkups: Sequence[Checkup]) -> list[str]:
    """Short phrases that describe several healthy hosts together."""
    clocks = [checkup.clock for checkup in checkups if checkup.clock is not None]
    ages = [age for checkup in checkups if (age := checkup.newest_age_ns) is not None]
    free = [size for checkup in checkups if (size := checkup.free_bytes) is not None]
    versions = {str(checkup.status.get("oncall_version")) for checkup in checkups}
    phrases = [f"oncall {', '.join(sorted(versions))}"]
    if clocks:
        worst = max(clocks, key=lambda clock: abs(clock.offset_ns))
        offset, error = format_duration(abs(worst.offset_ns)), format_duration(worst.error_ns)
        phrases.append(f"clock off by at most {offset} ± {error}")
    oldest = f"newest shard {format_duration(max(ages))} old" if ages else "no shard yet"
    phrases.append(
        oldest if len(ages) < 2 else oldest.replace("newest shard", "newest shard up to")
    )
    if free:
        phrases.append(f"{format_bytes(min(free))} free")
    recording = sorted({job for checkup in checkups for job in checkup.recording})
    alive = sum(checkup.rings("alive") for checkup in checkups)
    phrases.append(
        f"{alive} rings in {', '.join(recording)}" if recording else "no job is recording"
    )
    if died := sum(checkup.rings("died") for checkup in checkups):
        phrases.append(f"{died} processes died while recording")
    return phrases


def _inner(status: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A table of a node's status; empty if it is something else."""
    value = status.get(key)
    return value if isinstance(value, Mapping) else {}


def _texts(value: object) -> list[str]:
    return [str(each)[:200] for each in value] if isinstance(value, list) else []

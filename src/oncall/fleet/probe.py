"""Probes between nodes on demand: every node listens, some ping.

    greet     every host: may it be probed, and its clock
    listen    every host: opens ports on its NICs
    ping      the pinging hosts: a few targets per request, in turns
    send      neighbours in the list, at most one transfer of a node at a time

A node listens only while its connection is open, so Ctrl-C leaves nothing behind.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.fleet.ask import stopped_by_interrupt, what_became
from oncall.fleet.branch import Tree
from oncall.fleet.gather import Gather, Progress, Window
from oncall.fleet.merge import merge_measured
from oncall.fleet.outcome import Kind, Outcome
from oncall.fleet.transport import Transport
from oncall.node.store.probe_request import MOST_TARGETS, ProbeRequest, ProbeTarget
from oncall.node.store.wire import Request

MOST_PEERS = 32  # pinged by one node; chosen at random in a larger fleet
_PINGS_OF_A_REQUEST = 600  # three seconds, which Ctrl-C may have to wait
_LEAST_PROBED = 2


@dataclass(frozen=True)
class ProbeOrder:
    """What to probe. `sources`: the hosts that ping; none named: all. `mesh`: every NIC pings
    every NIC, else NIC k pings NIC k."""

    sources: Sequence[str] = ()
    count: int = 20
    bandwidth: bool = False
    mesh: bool = False


@dataclass(frozen=True)
class Probed:
    """The results: an incident with `pings`, `bandwidths` and `clocks`, which the caller closes;
    the outcome of each host; oddities (host -> sentences); why there were no RDMA pings (reason ->
    hosts); and gateways that failed with the reason."""

    incident: Incident
    outcomes: Mapping[str, Outcome]
    odd: Mapping[str, Sequence[str]] = field(default_factory=dict)
    without_rdma: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sampled: bool = False
    lost_gateways: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Listener:
    """Where a host listens, as it reports."""

    host: str
    node: str
    udp_port: int
    tcp_port: int
    nics: tuple[tuple[str, str], ...]  # name and address, NIC k being rail k
    without_rdma: str | None


async def probe_fleet(
    transport: Transport,
    hosts: Sequence[str],
    order: ProbeOrder,
    *,
    patience_s: float = 20.0,
    tree: Tree | None = None,
    progress: Callable[[Progress], None] | None = None,
    begun: Callable[[Gather], object] = lambda _: None,
) -> Probed:
    """Let hosts probe each other. Ctrl-C, or `stop` of the gather that `begun` receives, ends the
    probe with the results so far.

    Raises UsageError if fewer than two hosts can be probed, or a source is not among them.
    """
    foreign = [host for host in order.sources if host not in hosts]
    if foreign:
        raise UsageError(f"--from {foreign[0]}: not one of the nodes to probe")
    async with Gather(
        transport, hosts, Window(), patience_s=patience_s, tree=tree, progress=progress
    ) as gather:
        begun(gather)
        with stopped_by_interrupt(gather):
            listeners = await _listen(gather)
            sampled, odd = await _probe(gather, listeners, order)
        answers = gather.answers
        incident, bad = merge_measured(answers)
        for host, problem in bad.items():
            odd.setdefault(host, []).append(f"cannot read some of its answers: {problem}")
        return Probed(
            incident,
            answers.outcomes,
            odd,
            _without_rdma(listeners),
            sampled,
            gather.lost_gateways,
        )


async def _listen(gather: Gather) -> dict[str, _Listener]:
    """Make all capable hosts listen; host -> where."""
    for host, outcome in (await gather.greet()).items():
        if outcome.kind == "ok" and (why := why_not_probed(outcome)):
            gather.leave_out(host, *why)
    able = [host for host, outcome in gather.answers.outcomes.items() if outcome.kind == "ok"]
    listen = ProbeRequest("listen").request()
    await gather.each("listen", dict.fromkeys(able, listen))
    listeners = {}
    for host, outcome in gather.answers.outcomes.items():
        if outcome.kind != "ok":
            continue
        if (listener := _listener(outcome)) is None:
            gather.leave_out(host, "protocol", "did not report where it listens")
        else:
            listeners[host] = listener
    if len(listeners) < _LEAST_PROBED:
        raise UsageError(
            f"a probe needs two nodes that answer: {what_became(gather.answers.outcomes)}"
        )
    return listeners


def why_not_probed(outcome: Outcome) -> tuple[Kind, str] | None:
    """Why a host that answered cannot be probed; None if it can."""
    if "probe" in (outcome.status.get("asks") or ()):
        return None
    if "asks" in outcome.status:
        return "error", "your key there is read-only (`--read-only` in authorized_keys)"
    version = outcome.status.get("oncall_version")
    return "version", f"oncall {version} there does not support probes: upgrade it"


def _listener(outcome: Outcome) -> _Listener | None:
    reported = outcome.status.get("listening")
    try:
        nics = tuple((str(nic["nic"]), str(nic["address"])) for nic in reported["nics"])  # type: ignore[index]
        ports = int(reported["udp_port"]), int(reported["tcp_port"])  # type: ignore[index]
        without = reported.get("without_rdma")  # type: ignore[union-attr]
    except (KeyError, TypeError, ValueError):
        return None
    return _Listener(outcome.host, outcome.node, *ports, nics, without) if nics else None


async def _probe(
    gather: Gather, listeners: Mapping[str, _Listener], order: ProbeOrder
) -> tuple[bool, dict[str, list[str]]]:
    """Ping and, if ordered, measure bandwidth. Returns whether targets were sampled, and the
    oddities."""
    chance = random.Random()
    odd: dict[str, list[str]] = {}
    sources = [host for host in (order.sources or listeners) if host in listeners]
    plans: dict[str, list[ProbeTarget]] = {}
    sampled = False
    for host in sources:
        peers = [each for each in listeners if each != host]
        # With --from, a source pings all peers.
        if not order.sources and len(peers) > MOST_PEERS:
            peers, sampled = chance.sample(peers, MOST_PEERS), True
        plans[host] = [
            target
            for peer in peers
            for target in _targets(listeners[host], listeners[peer], order.mesh)
        ]
    for requests in _rounds(plans, order.count):
        if gather.stopped:
            break
        await gather.each("ping", requests)
        _note_odd(gather, requests, odd)
    if order.bandwidth:
        for requests in _transfers(listeners, sources):
            if gather.stopped:
                break
            await gather.each("send", requests)
            _note_odd(gather, requests, odd)
    return sampled, odd


def _targets(here: _Listener, there: _Listener, mesh: bool) -> Iterator[ProbeTarget]:
    for number in range(len(here.nics)):
        for other, (nic, address) in enumerate(there.nics):
            if mesh or other == number:
                yield ProbeTarget(number, there.node, nic, address, there.udp_port, there.tcp_port)


def _rounds(plans: Mapping[str, Sequence[ProbeTarget]], count: int) -> Iterator[dict[str, Request]]:
    """Requests of a few seconds each, all hosts at once."""
    size = max(1, min(MOST_TARGETS, _PINGS_OF_A_REQUEST // (count + 1)))
    longest = max(map(len, plans.values()), default=0)
    for first in range(0, longest, size):
        yield {
            host: ProbeRequest("ping", tuple(targets[first : first + size]), count).request()
            for host, targets in plans.items()
            if targets[first : first + size]
        }


def _transfers(
    listeners: Mapping[str, _Listener], sources: Sequence[str]
) -> Iterator[dict[str, Request]]:
    """Each source sends to the next host in the list; within a round no host has two transfers."""
    hosts = list(listeners)
    left = {host: hosts[(hosts.index(host) + 1) % len(hosts)] for host in sources}
    while left:
        busy: set[str] = set()
        requests = {}
        for host, other in list(left.items()):
            if not busy & {host, other}:
                busy |= {host, other}
                del left[host]
                targets = tuple(_targets(listeners[host], listeners[other], mesh=False))
                requests[host] = ProbeRequest("send", targets).request()
        yield requests


def _note_odd(gather: Gather, hosts: Mapping[str, Any], odd: dict[str, list[str]]) -> None:
    for host in hosts:
        probed = gather.answers.outcomes[host].status.get("probed")
        said = probed.get("odd") if isinstance(probed, dict) else None
        for sentence in said if isinstance(said, list) else ():
            odd.setdefault(host, []).append(str(sentence)[:200])


def _without_rdma(listeners: Mapping[str, _Listener]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for host, listener in listeners.items():
        if listener.without_rdma:
            reasons.setdefault(listener.without_rdma[:300], []).append(host)
    return reasons

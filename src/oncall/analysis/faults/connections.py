"""Causes that lines of the network and of the start state: links, completions, versions, NVLink
SHARP, connections that fail.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from oncall.analysis.faults.lines import Attempt, Cause, Row, caused, link, once, once_known

# Interfaces that belong to containers or virtual machines of their own host.
VIRTUAL = "^(veth|docker|virbr|br-|cni|flannel|cali|tunl|vmnet|lxc|podman)"
# Addresses that are valid on one link or host only; 172.17.0.1 is the bridge of Docker, on every
# host that runs it.
LOCAL = r"^(169[.]254[.]|fe80:|127[.]|::1\b|172[.]17[.]0[.]1\b)|%(veth|docker|virbr|cni)"


# What keeps a job from starting on the host that says so.
_OF_ITS_HOST = {"port_in_use", "unscheduled", "ssh", "launch"} | {
    *("memlock", "shared_memory", "address")
}
_LINK = {"port_error", "port_err", "fatal", "down", "device_fatal", "local_catastrophic_error"}


def _link_down(attempt: Attempt) -> list[Cause]:
    # A link is its host's, whichever of the host's ranks prints that it went down.
    rows = [
        {**row, "rank": None if row["node"] else row["rank"]}
        for row in attempt.of("port")
        if row["code"] in _LINK
    ]
    return [caused("link_down", row["code"], row, nic=row["device"]) for row in once(rows, "node")]


def _completions(attempt: Attempt) -> list[Cause]:
    """Completion errors; 5 (flushed) follows from another. A peer that several hosts name is it."""
    every = [row for row in attempt.of("ib") if not attempt.finished_before(row)]
    rows = [row for row in every if row["code"] != "5"] or every
    if not rows:
        return []
    hosts_of = _hosts_by_address(attempt)
    rows = [{**row, "peer_host": hosts_of.get(row["peer_host"], row["peer_host"])} for row in rows]
    # A line without a host repeats another, as PyTorch's exception repeats NCCL's last error.
    reporters: dict[Any, set[Any]] = {row["peer_host"]: set() for row in rows}
    for row in rows:
        reporters[row["peer_host"]] |= {row["node"]} - {None}
    peer, hosts = max(reporters.items(), key=lambda pair: len(pair[1]))
    if len(hosts) > 1:
        row = next(row for row in rows if row["peer_host"] == peer)
        return [
            caused(
                "ib_error",
                "one_peer",
                {**row, "node": peer, "rank": None},
                peer_host=peer,
                waiting=len(hosts),
                number=_status(row),
            )
        ]
    return [
        caused(
            "ib_error",
            f"status_{row['code']}" if _status(row) is not None else row["code"],
            row,
            peer_host=row["peer_host"],
            number=_status(row),
            nic=row["device"],
            link=link(row),
        )
        for row in once(rows, "node", "peer_host")[:1]
    ]


def _status(row: Row) -> int | None:
    """The completion status, where the transport prints one."""
    return int(row["code"]) if row["code"].isdecimal() else None


def _hosts_by_address(attempt: Attempt) -> Mapping[str, str]:
    """The host that chose each address, where only one did."""
    hosts: dict[str, set[str]] = defaultdict(set)
    for row in attempt.of("net"):
        if row["code"] == "interface" and row["node"] and row["peer_host"]:
            hosts[row["peer_host"]].add(row["node"])
    return {address: min(names) for address, names in hosts.items() if len(names) == 1}


def _versions(attempt: Attempt) -> list[Cause]:
    """Who has another version than most: hosts, where their lines state versions, else ranks."""
    rows = attempt.fatal("version")
    stated = [row for row in rows if row["code"] == "stated"]
    if rows and not stated:
        each = [row for row in rows if row["code"] in ("driver", "setting")]
        return [caused("version", row["code"], row) for row in once_known(each) or rows[:1]]
    loaded = once(attempt.of("nccl_version"), "code", "node")
    if len({row["code"] for row in loaded}) > 1:
        said = " and ".join(sorted({row["code"] for row in loaded}))
        place = stated[0] if stated else None
        return [
            caused("version", "loaded", {**row, **_place(place or row), "rank": None, "text": said})
            for row in _fewest(loaded, "code", "node")
        ]
    return [caused("version", "stated", row) for row in _fewest(stated, "text", "rank")]


def _place(row: Row) -> Row:
    return {name: row[name] for name in ("place", "at_ns", "path", "line")}


def _fewest(rows: Sequence[Row], said: str, who: str) -> list[Row]:
    """The rows of those whose `said` is in the minority; of two equal sides both."""
    known = once([row for row in rows if row[who] is not None], said, who)
    count = Counter(row[said] for row in known)
    most = max(count.values(), default=0)
    odd = [row for row in known if count[row[said]] < most]
    return odd or once(rows, said, who)


def _nvls(attempt: Attempt) -> list[Cause]:
    """NVLink SHARP, which NCCL does not go on without; else SHARP of the network."""
    refused = [caused("nvls", row["code"], row) for row in once_known(attempt.of("nvls"), "node")]
    collnet = [{**row, "node": None} for row in attempt.of("sharp")]
    return refused or [caused("sharp_off", row["code"], row) for row in collnet[:1]]


def _fabric(attempt: Attempt) -> list[Cause]:
    rows = attempt.of("fabric") + [row for row in attempt.of("cuda") if row["code"] == "system"]
    return [caused("fabric_manager", "fabric", row) for row in once_known(rows, "node")]


def _init(attempt: Attempt) -> list[Cause]:
    """What kept the job from starting. Once it took steps, or NCCL was ready, it did start."""
    begun = [row["place"] for row in attempt.of("nccl_init") if row["code"] == "complete"]
    rows = [
        row
        for row in attempt.of("init")
        if not attempt.started_before(row) and row["place"] > max(begun, default=0)
    ]
    weak = ("store", "store_get", "rendezvous", "gloo", "clique")
    first = next((row for row in rows if row["code"] not in weak), rows[0] if rows else None)
    if first is None:
        return _half_made(attempt)
    if first["code"] == "absent":
        absent = [row for row in rows if row["code"] == "absent"]
        return [caused("init_hang", "absent", row) for row in once(absent, "rank")]
    if re.search(LOCAL, first["peer_host"] or "") or first["code"] == "no_interface":
        return _wrong_interface(attempt, first)
    alike = [row for row in rows if row["peer_host"] == first["peer_host"]]
    hosts = {row["node"] for row in alike if row["code"] == first["code"]} - {None}
    return [
        caused(
            "init_hang",
            first["code"],
            {**first, "rank": None, "node": _host_to_see(first, len(hosts))},
            peer_host=first["peer_host"],
            link=link(first) if len(hosts) < 2 else None,
            number=first["number"],
            waiting=len(hosts),
        )
    ]


def _host_to_see(row: Row, hosts: int) -> str | None:
    """Who cannot reach an address alone may be at fault; an address that several cannot reach is.
    Who reports that others did not come is no culprit."""
    if row["code"] in _OF_ITS_HOST:
        return _text(row["node"])
    if row["peer_host"] is None or (hosts > 1 and row["code"] != "connect"):
        return None
    return _text(row["peer_host"] if hosts > 1 else row["node"])


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _wrong_interface(attempt: Attempt, row: Row) -> list[Cause]:
    """A host without the interface that it is to use, or a connection to an address that no other
    host can reach: the hosts that chose the address are to blame; where none says that it did, the
    one that cannot connect is all that is known."""
    chose = [
        one
        for one in attempt.of("net")
        if one["code"] == "interface" and one["peer_host"] == row["peer_host"]
    ]
    odd = [one["node"] for one in once(chose, "node")] or [row["node"]]
    return [
        caused(
            "wrong_interface",
            "chosen" if chose else row["code"],
            {**row, "rank": None, "node": node},
            peer_host=row["peer_host"],
            link=link(row) if not chose else None,
        )
        for node in odd
    ]


def _half_made(attempt: Attempt) -> list[Cause]:
    """Communicators that processes began to make, and that some or all had not completed when the
    log ends."""
    inits = [row for row in attempt.of("nccl_init") if row["comm_rank"] is not None]
    done = {
        (row["process_group"], row["node"], row["comm_rank"])
        for row in inits
        if row["code"] == "complete"
    }
    begun = [row for row in inits if row["code"] == "start"]
    open_ = [
        row for row in begun if (row["process_group"], row["node"], row["comm_rank"]) not in done
    ]
    if (
        not open_
        or attempt.steps
        or any((row["code"] or "").startswith("channel_") for row in attempt.of("net"))
        or not attempt.events
        or [row for row in attempt.events if row["code"] != "last"][-1]["kind"]
        not in ("nccl_init", "net", "echo")
    ):
        return []
    first = open_[0]
    came = [row for row in begun if row["process_group"] == first["process_group"]]
    some = {row["comm_rank"] for row in came if row not in open_}
    here = some or {row["comm_rank"] for row in came}
    size = first["number"] or 0
    missing = (
        sorted(set(range(size)) - here)
        if 0 < size - len(here) <= max(1, size // 4) and size == attempt.world
        else []
    )
    said = f"{len(here)} of {size} ranks "
    said += "completed a communicator" if some else "began a communicator, and none completed it"
    about = {**first, "text": said}
    return [
        caused("init_hang", "not_complete", {**about, "rank": rank, "node": None})
        for rank in missing
    ] or [caused("init_hang", "not_complete", {**about, "rank": None, "node": None})]


CONNECTIONS = (_link_down, _completions, _versions, _nvls, _fabric, _init)

"""How a job starts: stores, rendezvous, the first connections, NCCL's initialisation."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.importers.logs.line import Found, Line, Recogniser, event

_CLIENTS = re.compile(r"Timed out after \d+ seconds waiting for clients\. \d+/(\d+) clients joined")
_BARRIER = re.compile(
    r"^(?>.*?store based barrier on rank: ?(?P<rank>\d++)).*?world_size=(?P<size>\d++), "
    r"(?:worker_count|num_workers_joined)=(?P<joined>\d+)",
    re.MULTILINE,
)
_CONNECT = re.compile(
    r"client socket has timed out after \S+ while trying to connect to "
    r"\(?\[?(?P<peer>[\w.:-]+?)\]?, ?(?P<port>\d+)\)"
)
# As NCCL writes an address, then as Gloo does: connections of other programs keep no job.
_NO_CONNECTION = re.compile(
    r"[Cc]onnect (?:to )?\[?(?P<peer>[\w.:%-]+)(?:<\d+> (?:returned|failed)|\]:\d+:)[ :]*"
    r"(?:\d+\()?(?P<why>[A-Z][\w ]+)"
)
_REFUSED = re.compile(
    r"connect(?: to (?P<peer>[\w.:%-]+)<\d+>)? returned "
    r"(?P<why>Connection refused|\S[\w ]{1,60}?), retrying \((?P<tries>\d+)/(?P<most>\d+)\)"
)
_NAME = re.compile(
    r"network addresses of \((?P<peer>[\w.:-]+), \d+\) cannot be retrieved|"
    r"^(?!.*HTTPS?Connection)(?>.*?(?P<what>Temporary failure in name resolution|"
    r"Name or service not known))"
)
# A launcher that starts processes on other hosts by ssh.
_SSH = re.compile(
    r"ssh: connect to host (?P<peer>[\w.:-]+) port \d+: (?P<why>[\w ]+)|"
    r"ssh: Could not resolve hostname (?P<name>[\w.-]+?):"
)
_NO_ROOM = re.compile(
    r"Cannot provide a placement group|[Nn]o available node types can fulfill resource request"
)
# Of Huawei's HCCL, whose processes could not connect to one another.
_HCCL = re.compile(r"^(?>.*?EI0006: ).*Getting socket times out")
_PORT = re.compile(r"EADDRINUSE|[Aa]ddress already in use")
_NO_INTERFACE = re.compile(
    r"(?:[Nn]o socket interface found|[Ff]ailed to find interface \S+|"
    r"[Nn]o IP interface found)"
)
_STORE_WAIT = re.compile(r"(?:wait|Wait) timeout after (\d+) ?ms|Socket Timeout\b")
_GLOO = re.compile(r"Gloo connectFullMesh failed")
_RENDEZVOUS = re.compile(r"Rendezvous(Timeout|Connection|Closed|State)Error")
# An agent that kept alive in a rendezvous had joined it: whoever hosts the store is gone. At its
# end a job's agents may all fail to close it.
_KEPT_ALIVE = re.compile(r"has failed to send a keep-alive heartbeat to the rendezvous")
_CLOSING = re.compile(r"has failed to shutdown the rendezvous")
_INIT = re.compile(
    r"comm (?P<comm>0x\w+) rank (?P<rank>\d+) n[rR]anks (?P<size>\d+) "
    r"(?:cudaDev (?P<dev>\d+) )?(?:nvmlDev \d+ )?(?:busId (?P<bus>\w+) )?"
    r"(?:localSize \d+ used \d+ bytes )?"
    r"(?:commId (?P<id>0x\w+) )?- ?Init (?P<what>START|COMPLETE)"
)
_NODES = re.compile(r"nRanks (\d+) nNodes (\d+) localRanks (\d+)")


def _pci(bus: str | None) -> str | None:
    """`9b000` is 0000:9b:00.0; hexadecimal domain, bus, device and function without colons."""
    if not bus:
        return None
    number = int(bus, 16)
    return (
        f"{number >> 20 & 0xFFFF:04x}:{number >> 12 & 0xFF:02x}:{number >> 4 & 0xFF:02x}"
        f".{number & 0xF:x}"
    )


def _init(found: re.Match[str]) -> Found:
    return event(
        "nccl_init",
        found["what"].lower(),
        comm_rank=int(found["rank"]),
        number=int(found["size"]),
        device=_pci(found["bus"]),
        process_group=found["id"] or found["comm"],
    )


def read(line: Line) -> Sequence[Found]:
    """What one line says of the start."""
    text = line.text
    if " Init " in text and (found := _INIT.search(text)):
        return [_init(found)]
    if "nNodes" in text and (found := _NODES.search(text)):
        return [event("nccl_init", "nodes", number=int(found[2]))]
    if found := _CLIENTS.search(text) or _CLIENTS.search(line.unwrapped):
        return [event("init", "clients", number=int(found[1]), text=found[0])]
    if found := _BARRIER.search(text) or _BARRIER.search(line.unwrapped):
        size, joined = int(found["size"]), int(found["joined"])
        said = f"{joined} of {size} workers passed the store's barrier"
        if joined > size:
            said += ": a store of an earlier attempt is still there"
        return [event("init", "barrier", number=size, text=said)]
    if found := _CONNECT.search(text) or _CONNECT.search(line.unwrapped):
        said = f"no connection to {found['peer']}:{found['port']}"
        return [event("init", "connect", peer_host=found["peer"], text=said)]
    if "onnect" in text:
        found = _REFUSED.search(text) or _NO_CONNECTION.search(text)
        if found is not None and "no error" not in text:
            peer = found["peer"]
            said = f"connect{f' to {peer}' if peer else ''}: {found['why'].strip()}"
            return [event("init", "connect", peer_host=peer, text=said)]
    if found := _SSH.search(text):
        host, why = found["peer"] or found["name"], found["why"] or "its name has no address"
        said = f"ssh to {host}: {why}"
        return [event("init", "ssh", node=host, text=said)]
    if _NO_ROOM.search(text):
        return [event("init", "unscheduled", text=text)]
    if found := _HCCL.search(text):
        return [event("init", "socket", text="HCCL: getting a socket to another rank timed out")]
    if _GLOO.search(text):
        return [event("init", "gloo", text=text)]
    if _PORT.search(text):
        return [event("init", "port_in_use", text=text)]
    if (found := _NO_INTERFACE.search(text)) and line.nccl != "INFO":
        return [event("init", "no_interface", text=found[0])]
    if line.level != "W" and (found := _NAME.search(text)):
        said = f"the name {found['peer']} has no address" if found["peer"] else found["what"]
        return [event("init", "name", peer_host=found["peer"], text=said)]
    if _KEPT_ALIVE.search(text):
        return [event("echo", "rendezvous", text=text)]
    if _RENDEZVOUS.search(text) and not _CLOSING.search(text):
        return [event("init", "rendezvous", text=text)]
    if "get('" in text and "got error" in text:
        return [event("init", "store_get", text=text)]
    if _STORE_WAIT.search(text):
        return [event("init", "store", text=text)]
    return []


STARTING = Recogniser(
    "starting",
    (
        "waiting for clients",
        "store based barrier",
        "client socket has timed out",
        "onnect to ",
        "connect returned",
        "connect [",
        "ssh: connect to",
        "provide a placement group",
        "node types can fulfill",
        "Getting socket times out",
        "ssh: Could not",
        "retrying (",
        "ait timeout after",
        "Socket Timeout",
        "connectFullMesh failed",
        "RendezvousTimeoutError",
        "RendezvousConnectionError",
        "got error:",
        "EADDRINUSE",
        "ddress already in use",
        "interface found",
        "ailed to find interface",
        "cannot be retrieved",
        "failure in name resolution",
        "Init START",
        "Init COMPLETE",
        "nNodes ",
    ),
    read,
)

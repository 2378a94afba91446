"""NCCL's own lines: which network it chose, with or without GPU Direct, and what failed on it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.evidence.codes.nvlink_errors import nvlink_domain
from oncall.importers.logs.line import Found, Line, Recogniser, event

_COMPLETION = re.compile(
    r"Got completion (?:from peer (?P<peer>\S+?)(?:<\d+>)? )?with (?:error |status=)"
    r"(?:(?P<name>IBV_WC_\w+)\()?(?P<status>\d+)"
)
# Transports other than NCCL's own verbs: libfabric's plugin, UCX, NVSHMEM.
_TRANSPORT = re.compile(
    r"^(?>.*?NET/OFI).*(?:completed with error|[Uu]nresponsive receiver|RC: \d+\. Error)|"
    r"(?:[Tt]ransport|RNR) retry count exceeded on (?P<ucx>\w+)|"
    r"(?:Local|Remote) (?:protection|access|operation|invalid request)[\w ]{0,60} on "
    r"(?P<other>\w+:\d+)/"
)
_VERBS = re.compile(
    r"Call to ibv_\w+ failed(?: with (?:error )?[^,]+)?"
    r"(?:, on dev (?P<hca>\w+))?"
)
_HCA = re.compile(r"\bhca (\w+)")
_LOCAL_GID = re.compile(r"localGid (\S+)")
_ASYNC = re.compile(
    r"NET/IB ?: (?:(?P<hca>\w+):(?P<port>\d+) )?(?:Got )?(?:non-fatal )?"
    r"(?P<fatal>async fatal|async) (?:error )?event(?P<queue> on (?:CQ|QP|SRQ)[^:]*)? ?: "
    r"(?P<what>[\w ]+)"
)
_ECHO = re.compile(
    r"Connection (?:reset|closed) by (?:remote )?peer|ncclRemoteError|remote process exited|"
    r"NCCL communicator was aborted"
)
_RAISED = re.compile(r"(?:\w+\.)*\w+(?:Error|Exception): ")
_VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)\+")
_USING = re.compile(r"(?:Bootstrap|NET/(?:Socket|IB)) ?: Using (?P<list>.*)")
_INTERFACE = re.compile(
    r"(?<![\w.-])(?P<name>[\w.-]++):(?P<address>[0-9a-fA-F.:]{2,60}+(?:%\w+)?)<\d+>"
)
_DEVICE = re.compile(r"\[\d+\](\w+):\d+/(?:IB|RoCE)")
_CHANNEL = re.compile(r"via NET/(?P<net>[\w ]+)/\d+(?P<gdr>/GDRDMA)?")
_INTRA = re.compile(r" via (?:P2P|SHM|PNP)/")
_NETWORK = re.compile(r"Using network (\S.*)")
_GDR = re.compile(
    r"GPU Direct RDMA (?P<how>Disabled|Enabled) for (?:GPU (?P<gpu>\w+) / )?HCA (?P<hca>\w+)"
    r"(?: '(?P<name>\w+)')?"
)
_NVLS = re.compile(
    r"NVLS\) Multicast memory|^(?>.*?transport/nvls\.cc).*(?:Cuda failure|WARN)|"
    r"^(?>.*?[Mm]ulticast).*(?:failed|error)|^(?>.*?[Ff]ailed to bind).*(?:NVLS|ulticast)"
)
_FABRIC = re.compile(r"[Ff]abric [Mm]anager|system not yet initialized|failure 802|IMEX")
_P2P = re.compile(r"P2P is disabled between|NCCL_P2P_DISABLE set by environment to 1")
_CLIQUE = re.compile(
    r"MNNVL busId \w+ fabric UUID ([0-9a-f]{1,16})\.([0-9a-f]{1,16}) cliqueId 0x([0-9a-f]{1,8})\b"
)


def _clique(found: re.Match[str]) -> list[Found]:
    """The NVLink domain of a GPU, whose UUID NCCL prints as two little-endian halves."""
    uuid = b"".join(int(half, 16).to_bytes(8, "little") for half in found.groups()[:2]).hex()
    domain = nvlink_domain(uuid, str(int(found[3], 16)))
    return [event("net", "clique", text=domain)] if domain else []


def _network(line: Line) -> list[Found]:
    """What NCCL says of the network that it uses."""
    text = line.text
    if found := _USING.search(text):
        rows = [
            event("net", "interface", device=one["name"], peer_host=one["address"], text=text)
            for one in _INTERFACE.finditer(found["list"])
        ]
        return rows + [event("net", "hca", device=hca) for hca in _DEVICE.findall(text)]
    if found := _CHANNEL.search(text):
        kind = "socket" if found["net"] == "Socket" else "gdr" if found["gdr"] else "no_gdr"
        return [event("net", f"channel_{kind}")]
    if _INTRA.search(text):
        return []
    if found := _CLIQUE.search(text):
        return _clique(found)
    if found := _NETWORK.search(text):
        return [event("net", "network", text=found[1].strip())]
    if found := _GDR.search(text):
        # Of a GPU and an adapter, or of an adapter alone.
        device = found["name"] or f"HCA {found['hca']}" + (
            f" of GPU {found['gpu']}" if found["gpu"] else ""
        )
        return [event("net", f"gdr_{found['how'].lower()}", device=device)]
    if "No device found" in text:
        return [event("net", "no_device", text=text)]
    if "libibverbs" in text and "ailed to open" in text:
        return [event("net", "no_verbs", text=text)]
    if found := _P2P.search(text):
        return [event("net", "p2p_disabled", text=text)]
    return []


def read(line: Line) -> Sequence[Found]:
    """What one line of NCCL says."""
    text = line.text
    if found := _COMPLETION.search(text) or (
        "Got completion" in text and _COMPLETION.search(line.unwrapped)
    ):
        hca, gid = _HCA.search(line.unwrapped), _LOCAL_GID.search(text)
        return [
            event(
                "ib",
                found["status"],
                peer_host=found["peer"],
                device=hca[1] if hca else gid[1] if gid else None,
                text=text,
            )
        ]
    if found := _TRANSPORT.search(text):
        return [event("ib", "transport", device=found["ucx"] or found["other"], text=text)]
    if found := _VERBS.search(text):
        return [event("ib", "verbs", device=found["hca"], text=text)]
    if found := _ASYNC.search(text):
        what = found["what"].strip()
        if found["queue"]:  # of what this host posted, not of its port
            return [event("ib", "queue", device=found["hca"], text=what)]
        code = "fatal" if found["fatal"] != "async" else what.replace(" ", "_")
        return [event("port", code, device=found["hca"], text=what)]
    raised = line.nccl == "WARN" or line.nccl is None
    if raised and _NVLS.search(text) and "not available" not in text:
        return [event("nvls", "fabric_manager" if "802" in text else "failed", text=text)]
    if line.nccl == "WARN" and "nvls" in text.lower():
        return [event("nvls", "failed", text=text)]
    if raised and _FABRIC.search(text) and re.search(r"fail|error|not |n't |timed", text.lower()):
        return [event("fabric", None, text=text)]
    if _ECHO.search(text):
        if _RAISED.match(text):
            return []  # read as an exception
        ended = "watchdog thread terminated" in text or "async NCCL error" in text
        return [event("echo", "ended" if ended else "peer_gone", text=text)]
    if found := _VERSION.search(text):
        return [event("nccl_version", found[1])]
    return _network(line) if line.nccl else []


def read_frame(line: Line) -> Sequence[Found]:
    """A warning of the NVLS transport, which its source file alone names."""
    if line.nccl == "WARN" and "Cuda failure" in line.text:
        return [event("nvls", "failed", text=line.text)]
    return []


def read_warning(line: Line) -> Sequence[Found]:
    """A warning that no other recogniser reads, or the one that an exception repeats below it. It
    counts only where a job fails of NCCL and nothing else says why."""
    if "Last error:" in line.text:
        said = next((text.strip() for text in line.below(2) if text.strip()), "")
    else:
        said = line.text if line.nccl == "WARN" else ""
    return [event("warning", "nccl", text=said)] if said else []


WARNINGS = Recogniser("warnings", ("NCCL WARN", "Last error:"), read_warning)

NVLS = Recogniser("nvls", ("transport/nvls",), read_frame)

NCCL = Recogniser(
    "nccl",
    (
        "Got completion ",
        "NET/OFI",
        "etry count exceeded",
        "Call to ibv_",
        "async event",
        "async error event",
        "async fatal event",
        "NVLS)",
        "ulticast",
        "abric Manager",
        "abric manager",
        "failure 802",
        "system not yet initialized",
        "Connection reset by",
        "Connection closed by",
        "remote process exited",
        "communicator was aborted",
        "ncclRemoteError",
        "NCCL version",
        ": Using ",
        "Using network",
        "via NET/",
        "GPU Direct RDMA",
        "No device found",
        "libibverbs",
        "MNNVL busId",
        "P2P is disabled",
        "P2P_DISABLE",
    ),
    read,
)

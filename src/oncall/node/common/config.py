"""What a collector is told: a TOML file, every key with a default, unknown keys refused.

node = "gpu017"
seal_every = "30 s"
keep_bytes = "10 GiB"
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args

from oncall.core.configuration import parse_toml
from oncall.core.errors import BadInput, UsageError
from oncall.core.nodeset import expand_hosts
from oncall.core.units import NS_PER_S, parse_quantity
from oncall.node.ping.ping_packet import DEFAULT_PORT
from oncall.node.ping.pinglist import By, check_rail_name
from oncall.node.store.catalog import is_node_name
from oncall.node.store.places import data_dir, run_dir

SOURCES = (  # by name, as `sources.py` makes them
    *("rings", "rdma_nics", "rdma_resources", "gpus", "hosts", "host_processes", "kernel_log"),
    *("probes", "dpa", "verbs", "traffic", "triggers"),
)


def _node() -> str:
    """This node's name as the hooks take it too: `$ONCALL_NODE`, else the host name."""
    return os.environ.get("ONCALL_NODE") or socket.gethostname().partition(".")[0]


def _key(kind: str, meaning: str) -> dict[str, str]:
    return {"kind": kind, "meaning": meaning}


@dataclass(frozen=True)
class Configuration:
    """Everything that can be configured. A field `keep_ns` or `keep_free_bytes` is spelt with
    its unit in the file: `keep = "2 d"`, `keep_free = "1 GiB"`."""

    node: str = field(
        default_factory=_node, metadata=_key("name", "this node's name, as SSH reaches it")
    )
    data_dir: Path = field(
        default_factory=data_dir, metadata=_key("path", "the live store and the sealed shards")
    )
    run_dir: Path = field(
        default_factory=run_dir, metadata=_key("path", "the rings and the collector's socket")
    )
    sources: tuple[str, ...] = field(default=SOURCES, metadata=_key("names", "what is collected"))
    root: Path = field(
        default=Path("/"),
        metadata=_key("path", "where the node's proc, sys and dev are, if not at /"),
    )
    rdma_nics_every_ns: int = field(
        default=NS_PER_S // 4, metadata=_key("duration", "how often NICs' counters are read")
    )
    rdma_resources_every_ns: int = field(
        default=10 * NS_PER_S, metadata=_key("duration", "how often queue pairs are listed")
    )
    gpus_every_ns: int = field(
        default=NS_PER_S, metadata=_key("duration", "how often GPUs are read")
    )
    hosts_every_ns: int = field(
        default=NS_PER_S, metadata=_key("duration", "how often the host is read")
    )
    host_processes_every_ns: int = field(
        default=NS_PER_S, metadata=_key("duration", "how often training processes are read")
    )
    kernel_log_every_ns: int = field(
        default=NS_PER_S, metadata=_key("duration", "how often the kernel log is read")
    )
    probes_every_ns: int = field(
        default=NS_PER_S, metadata=_key("duration", "how often the next target is probed")
    )
    probes_targets: tuple[str, ...] = field(
        default=(),
        metadata=_key("nodes", "the nodes to ping, such as gpu[001-512]; none: no pings"),
    )
    probes_by: By = field(
        default="rail",
        metadata=_key("way", "rail: NIC k pings NIC k; mesh: every NIC pings every NIC"),
    )
    probes_rail_name: str = field(
        default="{node}",
        metadata=_key("template", "the name of a node's NIC k, such as {node}-rail{rail}"),
    )
    probes_timeout_ns: int = field(
        default=NS_PER_S, metadata=_key("duration", "a ping not answered within is lost")
    )
    probes_respond: bool = field(
        default=False, metadata=_key("truth", "whether pings of other nodes are answered")
    )
    probes_address: str = field(
        default="", metadata=_key("name", "the address that answers pings; empty: every one")
    )
    probes_port: int = field(
        default=DEFAULT_PORT, metadata=_key("port", "the UDP port of pings, here and there")
    )
    dpa_every_ns: int = field(
        default=NS_PER_S, metadata=_key("duration", "how often NICs are asked for their epochs")
    )
    dpa_poller: str = field(
        default="", metadata=_key("name", "the program of dpa/ that asks them; empty: none does")
    )
    dpa_nics: tuple[str, ...] = field(
        default=(),
        metadata=_key("nodes", "the RDMA devices it is started for, such as mlx5_[0-7]"),
    )
    dpa_all_epochs: bool = field(
        default=False,
        metadata=_key("truth", "whether every epoch of them is stored"),
    )
    verbs_every_ns: int = field(
        default=NS_PER_S // 10,
        metadata=_key("duration", "how often posted work requests are read"),
    )
    verbs_window: int = field(
        default=50, metadata=_key("number", "work requests in a window (VenusTrace 4)")
    )
    verbs_timeout_ns: int = field(
        default=NS_PER_S // 2,
        metadata=_key("duration", "a request outstanding for longer is worth a probe"),
    )
    verbs_all_epochs: bool = field(
        default=False,
        metadata=_key(
            "truth", "whether every epoch is stored, not only around what is stuck or late"
        ),
    )
    traffic_every_ns: int = field(
        default=2 * NS_PER_S,
        metadata=_key("duration", "how often operations are looked for in what was sent"),
    )
    traffic_memory_bytes: int = field(
        default=48 * 2**20,
        metadata=_key("bytes", "what epochs of the last minute may take, of all queue pairs"),
    )
    triggers_capture: bool = field(
        default=False,
        metadata=_key("truth", "whether the network is looked at closely where a step is held up"),
    )
    triggers_every_ns: int = field(
        default=NS_PER_S // 20,
        metadata=_key("duration", "how often it is asked whether what ranks send stands still"),
    )
    triggers_stall_ns: int = field(
        default=NS_PER_S // 2,
        metadata=_key("duration", "nothing acknowledged for so long is a standstill"),
    )
    triggers_secret: str = field(
        default="",
        metadata=_key(
            "name",
            "a file with what collectors share to hand detections over; empty: they do not",
        ),
    )
    triggers_address: str = field(
        default="", metadata=_key("name", "the address that takes them; empty: every one")
    )
    triggers_port: int = field(
        default=DEFAULT_PORT + 1, metadata=_key("port", "the UDP port of it, here and there")
    )
    drain_every_ns: int = field(
        default=NS_PER_S // 5, metadata=_key("duration", "how often the rings are emptied")
    )
    commit_every_ns: int = field(
        default=2 * NS_PER_S, metadata=_key("duration", "how much a kill -9 can lose")
    )
    seal_every_ns: int = field(
        default=30 * NS_PER_S, metadata=_key("duration", "how often a shard is sealed")
    )
    seal_operations: int = field(
        default=100_000, metadata=_key("number", "a shard of so many operations is sealed sooner")
    )
    keep_ns: int = field(
        default=48 * 3600 * NS_PER_S, metadata=_key("duration", "sealed shards older than this go")
    )
    keep_bytes: int = field(
        default=16 * 2**30, metadata=_key("bytes", "beyond this the oldest sealed shards go")
    )
    keep_free_bytes: int = field(
        default=2**30, metadata=_key("bytes", "free disk left to others: no writing below it")
    )
    backlog_bytes: int = field(
        default=32 * 2**20, metadata=_key("bytes", "newest rows held while nothing can be written")
    )
    store_memory_bytes: int = field(
        default=48 * 2**20, metadata=_key("bytes", "what DuckDB may use")
    )
    ring_grace_ns: int = field(
        default=300 * NS_PER_S,
        metadata=_key("duration", "how long the ring of a process that is gone is kept"),
    )
    socket_group: bool = field(
        default=False,
        metadata=_key("truth", "whether the socket's group may ask too (mode 0660, not 0600)"),
    )


def key_of(name: str) -> str:
    """How a field is spelt in the file: its unit stands in the value instead."""
    # `keep_bytes` keeps its name, as `keep` is the time.
    return name if name == "keep_bytes" else re.sub("_(ns|bytes)$", "", name)


RATES = tuple(f"{name}_every_ns" for name in SOURCES if name != "rings")
PROBES = tuple(
    each.name
    for each in fields(Configuration)
    if each.name.startswith(("probes_", "dpa_", "verbs_", "traffic_", "triggers_"))
)
_KEYS = {key_of(declared.name): declared for declared in fields(Configuration)}


def load(path: Path | None, told: Mapping[str, Any] | None = None) -> Configuration:
    """The configuration in a file, if any, with what the command line told on top.

    Raises BadInput with file, line and key for what is wrong in the file, UsageError for what is
    wrong in `told`.
    """
    values = _read(path) if path else {}
    configuration = replace(Configuration(), **values)
    configuration = replace(
        configuration, **{key: value for key, value in (told or {}).items() if value is not None}
    )
    if not is_node_name(configuration.node):
        raise UsageError(f"`{configuration.node}` is no host name; tell one with --node")
    return configuration


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        table = parse_toml(text, path)
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(str(path), "not a text file in UTF-8") from error
    values = {}
    for key, value in table.items():
        place = f"{path}:{_line_of(text, key)}"
        if key not in _KEYS:
            known = ", ".join(_KEYS)
            raise BadInput(place, f"unknown key `{key}`; known are {known}")
        declared = _KEYS[key]
        try:
            values[declared.name] = _value(declared.metadata["kind"], value)
        except (UsageError, ValueError) as error:
            raise BadInput(place, f"`{key}`: {error}") from error
    return values


def _value(kind: str, value: Any) -> Any:
    """A value as its field wants it. Raises ValueError or UsageError if it is of another kind."""
    match kind:
        case "duration" | "bytes":
            quantity = parse_quantity(value) if isinstance(value, str) else None
            if quantity is None or quantity.dimension != kind:
                example = "30 s" if kind == "duration" else "1 GiB"
                raise ValueError(f'{value!r} is no {_WORDS[kind]} such as "{example}"')
            if not isinstance(quantity.value, int) or quantity.value < 0:
                raise ValueError(f"{value!r} is below zero")
            return quantity.value
        case "number" if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        case "truth" if isinstance(value, bool):
            return value
        case "path" if isinstance(value, str):
            return Path(value)
        case "name" if isinstance(value, str):
            return value
        case "port" if isinstance(value, int) and value in range(1, 65536):
            return value
        case "way" if value in get_args(By):
            return value
        case "template" if isinstance(value, str):
            return check_rail_name(value)
        case "nodes" if isinstance(value, (str, list)):
            listed = [value] if isinstance(value, str) else value
            return tuple(node for text in listed for node in expand_hosts(str(text)))
        case "names" if isinstance(value, list):
            unknown = [name for name in value if name not in SOURCES]
            if unknown:
                raise ValueError(f"unknown source {unknown[0]!r}; known are {', '.join(SOURCES)}")
            return tuple(value)
    raise ValueError(f"{value!r} is no {_WORDS[kind]}")


_WORDS = {
    "duration": "duration",
    "bytes": "size",
    "number": "number above zero",
    "truth": "true or false",
    "path": "path",
    "name": "name",
    "names": "list of names",
    "nodes": 'node set such as "gpu[001-512]", or list of them',
    "port": "port from 1 to 65535",
    "way": '"rail" or "mesh"',
    "template": "name",
}


def _line_of(text: str, key: str) -> int:
    """The 1-based line that sets `key`; 1 where it is spelt in another way."""
    spelt = re.compile(rf"""\s*(\[+\s*)?["']?{re.escape(key)}["']?\s*[=.\]]""")
    lines = text.splitlines()
    return next((n for n, line in enumerate(lines, start=1) if spelt.match(line)), 1)

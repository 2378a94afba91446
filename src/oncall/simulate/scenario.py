"""A scenario: what cluster trains what, what disturbs it, what breaks, and how well it is seen.

Written as a small YAML mapping (docs/guide/simulate.md) or made in Python. A key is a field's
name without its unit: `forward: 60 ms` sets `forward_ns`. Nothing here knows a rule.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, get_args

from oncall.core.errors import BadInput, UsageError
from oncall.core.nodeset import expand_ranks
from oncall.core.units import Dimension, parse_quantity
from oncall.simulate.fault import ROLES, Fault

T = TypeVar("T")

RECORDERS = ("patched", "hooks")
PING_CLOCKS = ("nic", "kernel", "program")
MEASURED_TABLES = (
    "nics", "nic_priorities", "gpus", "hosts", "host_processes", "devices", "links", "pings",
    "host_events",
)  # fmt: skip
_UNIT_SUFFIXES = ("_bytes_per_s", "_ns", "_bytes")
_EXAMPLES: Mapping[Dimension, str] = {
    "duration": "60 ms",
    "bytes": "32 MiB",
    "rate": "40 GB/s",
    "ratio": "3 %",
}


def _quantity(text: str) -> Any:
    quantity = parse_quantity(text)
    return field(default=quantity.value, metadata={"dimension": quantity.dimension})


@dataclass(frozen=True)
class Scenario:
    """One simulated training job. Equal scenarios give equal evidence, bit for bit."""

    job: str = "simulated"
    seed: int = 0
    duration_ns: int = _quantity("5 min")  # of training, if nothing hangs
    observe_after_ns: int = _quantity("10 min")  # how long a hang is watched

    # The cluster: tensor-parallel ranks are neighbours, then data-parallel, then stages.
    tp: int = 2
    pp: int = 2
    dp: int = 4
    ep: int = 1  # consecutive ranks of a stage, as Megatron with expert-tensor size 1
    gpus_per_node: int = 8
    nvlink_bytes_per_s: float = _quantity("200 GB/s")
    network_bytes_per_s: float = _quantity("40 GB/s")
    latency_ns: int = _quantity("20 us")
    channels: int = 4
    tree: tuple[str, ...] = ()  # roles whose AllReduce runs on a tree instead of a ring

    # The training step.
    micro_batches: int = 4
    forward_ns: int = _quantity("120 ms")  # of one micro-batch on one stage; backward is twice that
    tp_operations: int = 2  # per micro-batch and direction
    tp_bytes: int = _quantity("128 MiB")
    pp_bytes: int = _quantity("32 MiB")
    ep_bytes: int = _quantity("64 MiB")
    dp_bytes: int = _quantity("1 GiB")
    dp_buckets: int = 1
    distributed_optimizer: bool = True  # ReduceScatter and AllGather instead of AllReduce
    optimizer_ns: int = _quantity("40 ms")
    barrier_every: int = 0  # steps; 0: only after checkpoints

    # What is ordinary: jitter, slow first steps, pauses, late data.
    jitter: float = _quantity("2 %")  # of every computation and transfer
    warm_up_steps: int = 3
    warm_up_factor: float = 2.0
    checkpoint_every_ns: int = _quantity("0 s")  # 0: never
    checkpoint_ns: int = _quantity("15 s")
    hiccup_every_ns: int = _quantity("0 s")  # mean time between late batches; 0: never
    hiccup_ns: int = _quantity("600 ms")
    burst_every_ns: int = _quantity("0 s")  # mean time between spells of jitter; 0: never
    burst_ns: int = _quantity("5 s")

    # How it is seen.
    # patched: CCL-D's own NCCL, which counts the steps of every rank. hooks: ours on stock NCCL,
    # which see the transfers over the network only, and write what is in flight at every seal.
    recorder: str = "patched"
    seal_every_ns: int = _quantity("20 s")  # hooks
    answers_within_ns: int = _quantity("0 s")  # hooks: how far apart nodes were asked
    clock_offset_ns: int = _quantity("2 ms")  # nodes' clocks lie within plus or minus this
    clock_drift_ppm: float = 0.5
    clock_error_ns: int = _quantity("200 us")  # of the console's measurement of an offset
    holes: float = _quantity("0 %")  # of completed operations that the recorders lost
    missing_nodes: tuple[int, ...] = ()  # indexes of nodes that never answered

    # What is measured around the training; faults of devices and hosts imply it.
    measured: bool = False
    unseen: tuple[str, ...] = ()  # tables of measurements that nobody collected
    links_known: bool = False  # does a topology file say how NICs are cabled?
    ping_clock: str = "nic"  # who stamps network probes

    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise UsageError(f"scenario: {problem}")

    @property
    def world_size(self) -> int:
        return self.tp * self.pp * self.dp

    @property
    def nodes(self) -> int:
        return -(-self.world_size // self.gpus_per_node)

    @property
    def is_measured(self) -> bool:
        """Are NICs, GPUs and hosts measured, too?"""
        return self.measured or any(fault.is_measured for fault in self.faults)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Scenario:
        """A scenario from the keys and quantities of its YAML. Raises UsageError naming the key."""
        values = read_fields(cls, mapping, place="scenario", skip=("faults",))
        listed = mapping.get("faults") or ()
        if not isinstance(listed, (list, tuple)):
            raise UsageError("scenario: `faults` is a list, one mapping a fault")
        return cls(**values, faults=tuple(fault_from_mapping(item) for item in listed))

    @classmethod
    def load(cls, path: Path) -> Scenario:
        """A scenario from a YAML file. Raises BadInput naming the file and the key or line."""
        return load_mapping(path, cls.from_mapping)


def load_mapping(path: Path, read: Callable[[Mapping[str, Any]], T]) -> T:
    """What `read` makes of the mapping in a YAML file. Raises BadInput naming the file, and the
    line or what `read` refuses."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        content = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(path), f"cannot be read: {error}") from error
    except YAMLError as error:
        raise BadInput(str(path), f"is not YAML: {_one_line(error)}") from error
    if not isinstance(content, Mapping):
        raise BadInput(str(path), "a scenario is a mapping such as `tp: 4`")
    try:
        return read(content)
    except UsageError as error:
        raise BadInput(str(path), str(error)) from error


def fault_from_mapping(mapping: Any) -> Fault:
    """A fault from its YAML. `rank: 5` and `ranks: 0-2,5` are the same key."""
    if not isinstance(mapping, Mapping):
        raise UsageError("faults: each one is a mapping such as {fault: H1, rank: 5, at: 2 min}")
    mapping = {("ranks" if key == "rank" else key): value for key, value in mapping.items()}
    return Fault(**read_fields(Fault, mapping, place="faults"))


def read_fields(
    cls: type[Any], mapping: Mapping[str, Any], place: str, skip: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Keyword arguments of dataclass `cls` from YAML keys; unknown keys are refused by name."""
    known = {key_of(item): item for item in fields(cls)}
    values: dict[str, Any] = {}
    for key, value in mapping.items():
        if key in skip:
            continue
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
            hint = f" (did you mean `{near[0]}`?)" if near else f"; known: {', '.join(known)}"
            raise UsageError(f"{place}: unknown key `{key}`{hint}")
        values[known[key].name] = _read(known[key], key, value, place)
    required = [
        key
        for key, item in known.items()
        if item.default is MISSING and item.default_factory is MISSING and item.name not in values
    ]
    if required:
        raise UsageError(f"{place}: `{required[0]}` is missing")
    return values


def key_of(item: Field[Any]) -> str:
    """The YAML key of a field: its name without the unit, or the name its metadata gives."""
    if "key" in item.metadata:
        return str(item.metadata["key"])
    for suffix in _UNIT_SUFFIXES:
        if item.name.endswith(suffix) and "dimension" in item.metadata:
            bare = item.name.removesuffix(suffix)
            # `tp_bytes` would become `tp`, which is the size of the group.
            return item.name if suffix == "_bytes" else bare
    return item.name


def _read(item: Field[Any], key: str, value: Any, place: str) -> Any:
    dimension: Dimension | None = item.metadata.get("dimension")
    if dimension is not None:
        return _read_quantity(dimension, key, value, place)
    kind = str(item.type)
    if kind.startswith("tuple[int"):
        return _read_numbers(key, value, place)
    if kind.startswith("tuple[str"):
        return (value,) if isinstance(value, str) else tuple(str(part) for part in value or ())
    types: dict[str, type | tuple[type, ...]] = {"int": int, "float": (int, float), "bool": bool}
    wanted = types.get(kind, str)
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind != "bool"):
        article = {"int": "a whole number", "float": "a number", "bool": "true or false"}
        raise UsageError(f"{place}: `{key}: {value}` is not {article.get(kind, 'a word')}")
    return value


def _read_quantity(dimension: Dimension, key: str, value: Any, place: str) -> int | float:
    quantity = parse_quantity(value) if isinstance(value, (str, int, float)) else None
    if quantity is not None and not isinstance(quantity.value, str):
        if quantity.dimension == dimension:
            return quantity.value
        # Zero needs no unit, and a ratio is a number.
        if quantity.dimension == "number" and (dimension == "ratio" or quantity.value == 0):
            return quantity.value
    raise UsageError(f"{place}: `{key}: {value}` is not such as `{key}: {_EXAMPLES[dimension]}`")


def _read_numbers(key: str, value: Any, place: str) -> tuple[int, ...]:
    if isinstance(value, str):
        return expand_ranks(value)
    listed = [value] if isinstance(value, int) else value
    if isinstance(listed, (list, tuple)) and all(isinstance(part, int) for part in listed):
        return tuple(listed)
    raise UsageError(f"{place}: `{key}: {value}` is not numbers such as 5 or 0-2,4")


def _problems(scenario: Scenario) -> Iterable[str]:
    """What cannot be simulated, first things first."""
    s = scenario
    for name in ("tp", "pp", "dp", "ep", "gpus_per_node", "channels", "micro_batches"):
        if getattr(s, name) < 1:
            yield f"`{name}: {getattr(s, name)}` must be at least 1"
    for name in ("tp_operations", "dp_buckets", "warm_up_steps", "barrier_every", "seed"):
        if getattr(s, name) < 0:
            yield f"`{name}: {getattr(s, name)}` must not be negative"
    if s.world_size > 65_536:
        yield f"{s.world_size:,} ranks are more than the 65,536 this simulates"
    if s.world_size < 2:
        yield "one rank has nobody to wait for; raise tp, pp or dp"
    if (s.tp * s.dp) % s.ep:
        yield f"`ep: {s.ep}` does not divide the {s.tp * s.dp} ranks of a stage"
    if not 0 <= s.holes < 1:
        yield f"`holes: {s.holes}` is a share below 100 %"
    if s.forward_ns <= 0 or s.duration_ns <= 0:
        yield "`forward` and `duration` must be positive"
    if min(s.nvlink_bytes_per_s, s.network_bytes_per_s) <= 0:
        yield "`nvlink` and `network` must be positive"
    if s.recorder not in RECORDERS:
        yield f"`recorder: {s.recorder}` is none of {', '.join(RECORDERS)}"
    if s.seal_every_ns <= 0 or s.answers_within_ns < 0:
        yield "`seal_every` is positive, and `answers_within` not negative"
    if s.ping_clock not in PING_CLOCKS:
        yield f"`ping_clock: {s.ping_clock}` is none of {', '.join(PING_CLOCKS)}"
    for table in s.unseen:
        if table not in MEASURED_TABLES:
            yield f"`unseen: {table}` is none of {', '.join(MEASURED_TABLES)}"
    for role in s.tree:
        if role not in get_args(ROLES):
            yield f"`tree: {role}` is none of {', '.join(get_args(ROLES))}"
    for node in s.missing_nodes:
        if not 0 <= node < s.nodes:
            yield f"`missing_nodes: {node}`: the nodes are 0-{s.nodes - 1}"
    for fault in s.faults:
        for rank in fault.ranks:
            if not 0 <= rank < s.world_size:
                yield f"a fault on rank {rank}: the ranks are 0-{s.world_size - 1}"
        if fault.role in ("tp", "pp", "dp", "ep") and getattr(s, fault.role) == 1:
            yield f"a fault in {fault.role}, which has one rank here"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())

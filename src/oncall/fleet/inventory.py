"""Which hosts make up the fleet: from the command line, a file, Slurm or the configuration.

The first source that names hosts is used alone:

    1. --hosts NODESET       gpu[001-512], groups (@rack1), exclusions (gpu[1-9],!gpu3);
                             slurm:1234, kube:pytorchjob/NAME, ray:JOB are asked of the scheduler
    2. --inventory FILE      one node set a line, # starts a comment
    3. SLURM_JOB_NODELIST    inside a Slurm allocation
    4. hosts of [fleet] in the configuration

Host names become arguments of ssh. A name that ssh could take for an option, or that contains a
space or a control character, is rejected before anything is run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from oncall.core.errors import BadInput, UsageError
from oncall.fleet.configuration import FleetConfiguration

MOST_HOSTS = 65_536

_HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.+-]*@)?[A-Za-z0-9_:][A-Za-z0-9_.:%-]*")
_MOST_NAME = 255  # characters
_BRACKETS = re.compile(r"\[([^\]]*+)(?:\]|\Z)")
_SPAN = re.compile(r"\s*([0-9]{1,18})\s*-\s*([0-9]{1,18})\s*(?:/\s*([0-9]{1,18})\s*)?")
_NUMBER = re.compile(r"\s*[0-9]{1,18}\s*")
# As in hostfiles of MPI: `gpu001 slots=8`.
_SLOTS = re.compile(r"(?<!\s)\s++(?:slots|max_slots|max-slots)\s*=\s*[0-9]+|:[0-9]+$")


@dataclass(frozen=True)
class Inventory:
    """Distinct hosts in the order of their source, and the source."""

    hosts: tuple[str, ...]
    source: str


def find_hosts(
    hosts: str | None,
    file: Path | None,
    configuration: FleetConfiguration,
    environment: Mapping[str, str] | None = None,
) -> Inventory | None:
    """The inventory in force, by the order above; None if no source names a host.

    Raises UsageError for a node set that cannot be read and BadInput for a file with one.
    """
    environment = os.environ if environment is None else environment
    if hosts is not None and file is not None:
        raise UsageError("give either --hosts or --inventory, not both")
    if hosts is not None:
        return Inventory(expand_hosts(hosts), "--hosts")
    if file is not None:
        return Inventory(read_hostfile(file), str(file))
    # SLURM_NODELIST is the older name of the same.
    for variable in ("SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        if value := environment.get(variable):
            return Inventory(expand_hosts(value), variable)
    if configuration.hosts is not None:
        return Inventory(expand_hosts(configuration.hosts), "the configuration")
    return None


def no_hosts() -> UsageError:
    """The error for a command that needs hosts and has none."""
    return UsageError(
        "no nodes given: use --hosts gpu[001-512], --slurm-job ID or --inventory FILE, run inside "
        'the Slurm allocation, or set hosts = "gpu[001-512]" under [fleet] in '
        "~/.config/oncall/config.toml"
    )


def expand_hosts(text: str) -> tuple[str, ...]:
    """The hosts of a node set, in its order.

    Raises UsageError for an invalid node set, too many hosts, or an invalid host name.
    """
    _check_characters(text)
    _check_size(text)
    # Imported here: it takes 50 ms, which a command without hosts saves.
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        # ClusterShell expects `a!b`; people also write `a,!b`.
        names = list(NodeSet(re.sub(r",\s*!", "!", text)))
    except (NodeSetException, ValueError, AssertionError) as error:  # the latter: large numbers
        raise UsageError(f"`{text}` is not a node set such as gpu[001-512]: {error}") from None
    if not names:
        groups = "; groups come from ClusterShell (nodeset -LL lists them)" if "@" in text else ""
        raise UsageError(f"`{text}` contains no host{groups}")
    if len(names) > MOST_HOSTS:
        raise UsageError(f"`{text}` contains {len(names):,} hosts; the limit is {MOST_HOSTS:,}")
    for name in names:
        check_host(name)
    return tuple(names)


def check_host(name: str) -> None:
    """Raises UsageError unless `name` is a valid and safe host name or address."""
    if name.startswith("-"):
        raise UsageError(f"{name!r} is not allowed as a host: ssh would take it for an option")
    if not _HOST.fullmatch(name) or len(name) > _MOST_NAME:
        raise UsageError(f"{name!r} is not a host name: use only letters, digits and . - _ : %")


def read_hostfile(path: Path) -> tuple[str, ...]:
    """The hosts of a file with one node set per line.

    Ignores MPI's slots after a name (`slots=8`, `:8`). Raises BadInput with the line.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise BadInput(str(path), error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise BadInput(str(path), "not a text file in UTF-8") from None
    names: dict[str, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if content := _SLOTS.sub("", line.partition("#")[0].strip()):
            try:
                names.update(dict.fromkeys(_of_line(content)))
            except UsageError as error:
                raise BadInput(f"{path}:{number}", str(error)) from None
    if not names:
        raise BadInput(str(path), "contains no host")
    return tuple(names)


def _of_line(content: str) -> Sequence[str]:
    # `me@gpu001` would read as a group to a node set.
    if re.fullmatch(r"[^@\[\],!]+@[^@\[\],!]+", content):
        check_host(content)
        return (content,)
    return expand_hosts(content)


def _check_characters(text: str) -> None:
    for part in re.split(r"[,\s]+", text.strip()):
        if part.startswith("-"):
            check_host(part)
    if any(not character.isprintable() for character in text.strip("\n")):
        raise UsageError(f"{text!r} is not a node set: it contains a control character")
    if re.search(r"[^\s,!&^]\s+[^\s,!&^]", text):
        raise UsageError(f"{text!r}: separate hosts by commas, not by spaces")
    if "*" in text or "?" in text:
        raise UsageError(f"{text!r}: name the hosts or a group; there is no list to match * and ?")


def _check_size(text: str) -> None:
    """Refuse `gpu[1-9999999999]` before it is expanded into memory."""
    for name in re.split(r"[,!&^](?![^\[]*\])", text):
        size = prod(map(_count, _BRACKETS.findall(name[: name.rfind("]") + 1])))
        if size > MOST_HOSTS:
            raise UsageError(f"`{name.strip()}` names more than {MOST_HOSTS:,} hosts")


def _count(body: str) -> int:
    """How many numbers the inside of brackets names: `1-4,7` is 5. Raises UsageError for what is
    neither a number nor a span: ClusterShell fails on some of it."""
    count = 0
    for part in body.split(","):
        if span := _SPAN.fullmatch(part):
            first, last, step = int(span[1]), int(span[2]), int(span[3] or 1)
            count += max(0, last - first) // max(1, step) + 1
        elif _NUMBER.fullmatch(part):
            count += 1
        else:
            raise UsageError(
                f"`[{body}]` holds `{part}`, which is no number and no span such as 1-4"
            )
    return count

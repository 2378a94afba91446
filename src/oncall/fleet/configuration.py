"""The console's configuration: `[fleet]` of config.toml, the site's and above it the user's own.

    # /etc/oncall/config.toml, then $XDG_CONFIG_HOME/oncall/config.toml (~/.config/oncall)
    [fleet]
    hosts = "gpu[001-512],!gpu013"        # a node set; or ["gpu001", "gpu002"]
    transport = "auto"                    # or "openssh", "in-process"; "srun" for Slurm jobs
    command = "oncall node serve"         # the command to run on a node
    ssh = "ssh"                           # the OpenSSH client
    ssh_options = ["-F", "/etc/oncall/ssh_config"]
    srun_options = ["--mem=0"]            # of the step beside a Slurm job
    kubectl_options = ["--context=prod"]
    window = 32                           # new connections at a time
    jump_window = 8                       # new connections at a time through one jump host
    connect_timeout = "10s"
    answer_timeout = "20s"
    topology = "/etc/oncall/topology.conf"   # which gateways ask which nodes
    tree_from = 512                       # nodes from which on gateways ask
    gateway_command = "oncall node gather"

The user's keys override the site's one by one. An unknown key is an error.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from oncall.core.configuration import configuration_files, read_tables
from oncall.core.errors import BadInput, UsageError
from oncall.core.units import NS_PER_S, parse_duration_ns

TransportName = Literal["auto", "openssh", "in-process", "srun"]

__all__ = ["FleetConfiguration", "configuration_files", "read_configuration"]

_MOST_WINDOW = 512
_MOST_TREE_FROM = 65_536
# Below, one console asks all nodes within seconds, and gateways are only more that can fail:
# docs/performance.md.
TREE_FROM_NODES = 512


@dataclass(frozen=True)
class FleetConfiguration:
    """How the console reaches nodes. Times in seconds."""

    hosts: str | None = None
    transport: TransportName = "auto"
    command: str = "oncall node serve"
    ssh: str = "ssh"
    ssh_options: tuple[str, ...] = ()
    srun_options: tuple[str, ...] = ()
    kubectl_options: tuple[str, ...] = ()
    window: int = 32
    jump_window: int = 8
    connect_timeout_s: float = 10.0
    answer_timeout_s: float = 20.0
    topology: str | None = None
    tree_from: int = TREE_FROM_NODES
    gateway_command: str = "oncall node gather"


_KEYS = {field.name.removesuffix("_s"): field.name for field in fields(FleetConfiguration)}


def read_configuration(files: Sequence[Path] | None = None) -> FleetConfiguration:
    """The configuration in force. Files that do not exist are skipped.

    Raises BadInput, naming file and key, for TOML that is wrong, unknown keys and bad values.
    """
    tables, problems = read_tables("fleet", files)
    for problem in problems:
        raise problem
    configuration = FleetConfiguration()
    for table in tables:
        configuration = replace(configuration, **_values(table.path, table.values))
    return configuration


def _values(path: Path, table: Mapping[str, Any]) -> dict[str, Any]:
    """A file's keys as fields of FleetConfiguration."""
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f" (did you mean {near[0]}?)" if near else f"; known: {', '.join(_KEYS)}"
            raise BadInput(str(path), f"unknown option `{key}` in [fleet]{hint}")
        try:
            values[_KEYS[key]] = _value(key, value)
        except UsageError as error:
            raise BadInput(str(path), f"`{key}` in [fleet] {error}") from None
    return values


def _value(key: str, value: Any) -> Any:
    """The value as its field stores it. Raises UsageError with what is expected."""
    match key:
        case "hosts":
            return _text(",".join(_texts(value)) if isinstance(value, list) else value)
        case "ssh_options" | "srun_options" | "kubectl_options":
            return tuple(_texts(value))
        case "transport":
            if value not in get_args(TransportName):
                known = ", ".join(get_args(TransportName))
                raise UsageError(f"must be one of {known}, not {value!r}")
            return value
        case "window" | "jump_window":
            if not isinstance(value, int) or not 1 <= value <= _MOST_WINDOW:
                raise UsageError(f"must be an integer from 1 to {_MOST_WINDOW}, not {value!r}")
            return value
        case "tree_from":
            if not isinstance(value, int) or not 1 <= value <= _MOST_TREE_FROM:
                raise UsageError(f"must be an integer from 1 to {_MOST_TREE_FROM}, not {value!r}")
            return value
        case "connect_timeout" | "answer_timeout":
            duration_ns = parse_duration_ns(_text(value))
            if duration_ns <= 0:
                raise UsageError(f"must be positive, not {value!r}")
            return duration_ns / NS_PER_S
        case _:
            return _text(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise UsageError(f'must be a string such as "10s", not {value!r}')
    return value


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise UsageError(f'must be a list such as ["a", "b"], not {value!r}')
    return [_text(each) for each in value]

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from oncall.core.configuration import read_settings, text_of
from oncall.core.errors import UsageError
from oncall.core.units import NS_PER_S, parse_duration_ns

TransportName = Literal["auto", "openssh", "in-process", "srun"]

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


def read_configuration(files: Sequence[Path] | None = None) -> FleetConfiguration:
    """The configuration in force. Files that do not exist are skipped.

    Raises BadInput, naming file and key, for TOML that is wrong, unknown keys and bad values.
    """
    settings = read_settings("fleet", _READERS, files)
    return FleetConfiguration(**{_SECONDS.get(key, key): value for key, value in settings.items()})


def _hosts(value: Any) -> str:
    return text_of(",".join(_texts(value)) if isinstance(value, list) else value)


def _transport(value: Any) -> str:
    if value not in get_args(TransportName):
        raise UsageError(f"must be one of {', '.join(get_args(TransportName))}, not {value!r}")
    return str(value)


def _integer(most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if not isinstance(value, int) or not 1 <= value <= most:
            raise UsageError(f"must be an integer from 1 to {most}, not {value!r}")
        return value

    return read


def _seconds(value: Any) -> float:
    duration_ns = parse_duration_ns(text_of(value))
    if duration_ns <= 0:
        raise UsageError(f"must be positive, not {value!r}")
    return duration_ns / NS_PER_S


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise UsageError(f'must be a list such as ["a", "b"], not {value!r}')
    return tuple(map(text_of, value))


_SECONDS = {"connect_timeout": "connect_timeout_s", "answer_timeout": "answer_timeout_s"}
_READERS: dict[str, Callable[[Any], Any]] = {
    "hosts": _hosts,
    "transport": _transport,
    **dict.fromkeys(("command", "ssh", "topology", "gateway_command"), text_of),
    **dict.fromkeys(("ssh_options", "srun_options", "kubectl_options"), _texts),
    **dict.fromkeys(("window", "jump_window"), _integer(_MOST_WINDOW)),
    "tree_from": _integer(_MOST_TREE_FROM),
    **dict.fromkeys(_SECONDS, _seconds),
}

"""Interfaces and addresses that never lead to another host of a job."""

from __future__ import annotations

import re

_VIRTUAL = re.compile(
    r"^(?:veth|docker|virbr|br-|cni|flannel|cali|tunl|vmnet|lxc|podman)", re.IGNORECASE
)
# 172.17.0.1 is the bridge of Docker, on every host that runs it.
_LOCAL = re.compile(r"^(?:169\.254\.|fe80:|127\.|::1\b|172\.17\.0\.1\b)")
_ON_BRIDGE = re.compile(r"%(?:veth|docker|virbr|cni)")


def is_virtual(name: str | None) -> bool:
    """Whether an interface belongs to containers or virtual machines of its own host."""
    return bool(name and _VIRTUAL.match(name))


def is_unreachable(address: str | None) -> bool:
    """Whether an address is link-local or loopback: valid on one link or host only."""
    return bool(address and (_LOCAL.match(address) or _ON_BRIDGE.search(address)))

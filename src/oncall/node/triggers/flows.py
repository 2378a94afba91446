"""What a node's ranks send and wait for right now, flow by flow: what triggers are fed with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Flow:
    """From one rank of a communicator to another. Named alike on every node: `comm` is the
    communicator's identity, the same on all members, and ranks count in it."""

    comm: int
    src: int
    dst: int


@dataclass(frozen=True)
class InFlight:
    """A step of a flow that is sent from here. Times are CLOCK_MONOTONIC; `posted_ns`: since when
    all that goes on is on the wire and not acknowledged, None while a channel waits for its GPU or
    for the receiver. `starved`: every channel waits for its GPU, so there is nothing to send.
    `operation` counts in its process."""

    flow: Flow
    operation: int
    began_ns: int
    posted_ns: int | None
    starved: bool = False


@dataclass(frozen=True)
class Awaited:
    """A flow to here of which the receiver has given credit and nothing comes. `process` is whose
    queue pairs it comes by, as the names of its files begin."""

    flow: Flow
    process: str
    began_ns: int

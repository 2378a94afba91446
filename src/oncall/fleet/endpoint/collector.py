"""Asks the collector of this node for what it has not sealed yet."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from oncall.fleet.endpoint.node import Node
from oncall.node.store.parts import ReceivedPart
from oncall.node.store.places import socket_path
from oncall.node.store.wire import (
    NO_COLLECTOR,
    PROTOCOL,
    End,
    FrameDecoder,
    Part,
    Request,
    WireError,
)

COLLECTOR_TIMEOUT_S = 5.0


def ask_collector(
    node: Node, request: Request, into: AnswerFolder | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state of the collector, and the end of its answer; its parts go into the folder.

    Takes at most `COLLECTOR_TIMEOUT_S` if no collector runs or it does not answer.
    """
    if node.run is None:
        return {"alive": False}, {}
    into = into or AnswerFolder(Path(os.devnull))
    already = len(into.parts)
    decoder = FrameDecoder(into)
    deadline = time.monotonic() + COLLECTOR_TIMEOUT_S
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(COLLECTOR_TIMEOUT_S)
            asking.connect(str(socket_path(node.run)))
            asking.sendall(replace(request, protocol=PROTOCOL).line())
            while data := asking.recv(2**18):
                if (end := decoder.feed(data)) is not None:
                    return {"alive": True}, end.status
                asking.settimeout(max(0.001, deadline - time.monotonic()))
            raise decoder.broken_off()
    except (FileNotFoundError, ConnectionRefusedError):
        problem = NO_COLLECTOR
    except TimeoutError:
        problem = f"the collector did not answer within {COLLECTOR_TIMEOUT_S:g} s"
    except OSError as error:
        problem = f"cannot query the collector: {error.strerror or error}"
    except WireError as error:
        problem = f"invalid answer of the collector: {error}"
    finally:
        decoder.close()
    del into.parts[already:]
    return {"alive": False, "problem": problem}, {}


class AnswerFolder:
    """Parts on disk until all are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts: list[ReceivedPart] = []

    def part(self, table: str, rows: int, sender: str = "collector") -> IO[bytes]:
        path = self.folder / f"{len(self.parts)}.parquet"
        self.parts.append(ReceivedPart(sender, table, rows, path))
        return path.open("wb")

    def clear(self) -> None:
        """Forget the parts so far; files of the same numbers take their places."""
        self.parts.clear()

    def take(self, frames: Iterable[Part | End]) -> list[str]:
        """Write the parts; returns the gaps listed at the end of the answer."""
        gaps: list[str] = []
        for frame in frames:
            if isinstance(frame, Part):
                with self.part(frame.table, frame.rows, "shards") as file:
                    file.write(frame.parquet)
            else:
                gaps += gaps_of(frame)
        return gaps


def gaps_of(end: End) -> list[str]:
    """The gaps listed at the end of an answer."""
    gaps = end.status.get("gaps")
    return list(map(str, gaps)) if isinstance(gaps, list) else []

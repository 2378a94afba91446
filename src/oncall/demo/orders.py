"""Orders to break a rank of the running job, from the console to the process that owns the job.

The owner stays a process of one thread, as only such a one may start children that end with it; the
console, which has many, is a child of it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from oncall.core.errors import ExitCode, OncallError
from oncall.demo.faults import BREAKS, Break, fault_named

if TYPE_CHECKING:
    from oncall.demo.cluster import Cluster

_MEND = "mend"


@dataclass(frozen=True)
class Controls:
    """What the console holds: it writes orders, and hears of their effect as of any fault, from the
    evidence. `ranks`: how many there are; `descriptor`: where orders are written."""

    ranks: int
    descriptor: int

    def strike(self, how: Break, rank: int) -> None:
        """Break a rank, now. Raises OSError if the owner has ended."""
        os.write(self.descriptor, f"{how.word} {rank}\n".encode())

    def mend(self) -> None:
        """Undo what was broken. Raises OSError if the owner has ended."""
        os.write(self.descriptor, f"{_MEND}\n".encode())


def with_console(cluster: Cluster, show: Callable[[Controls], int]) -> int:
    """Show a console in a child and carry out its orders until it ends; returns its exit code.

    The child does not outlive an interrupt of this process.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _show(show, Controls(cluster.layout.world_size, writing))
    os.close(writing)
    try:
        with os.fdopen(reading) as orders:  # ends with the console, however that ends
            for order in orders:
                carry_out(cluster, order)
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        raise
    finally:
        _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _show(show: Callable[[Controls], int], controls: Controls) -> NoReturn:
    """What the child does; it never returns into what the owner has to clean up."""
    code: int = ExitCode.BUG
    try:
        code = show(controls)
    except OncallError as error:
        print(f"oncall: {error}", flush=True)
        code = ExitCode.BAD_INPUT
    finally:
        os._exit(code)


def carry_out(cluster: Cluster, order: str) -> None:
    """Do what a line orders: `stop 5`, `mend`. A rank that has ended stays as it is."""
    word, _, rank = order.strip().partition(" ")
    with suppress(ProcessLookupError):
        if word == _MEND:
            cluster.mend()
        else:
            how = next(one for one in BREAKS if one.word == word)
            cluster.inject(fault_named(how.fault).on(int(rank)))

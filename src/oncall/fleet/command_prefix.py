"""Reach hosts through a program that runs a command there: srun, kubectl exec.

The program needs nothing but to hand on stdin, stdout and the exit status, byte for byte. So an
answer may wait in it until a line is complete (srun) without harm: every answer ends in a line.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from oncall.fleet.child_process import Child, ChildChannel, WhyEnded
from oncall.fleet.configuration import FleetConfiguration
from oncall.fleet.inventory import check_host
from oncall.fleet.outcome import ErrorPattern, HostError, first_match, last_line, pattern
from oncall.fleet.transport import Connection


@dataclass(frozen=True)
class CommandPrefix:
    """A program that runs a command on a host. `words`: its argument list up to the command, by
    host; `by_hand`: the same to be typed, with `{host}`; `patterns`: what its stderr means."""

    program: str
    words: Callable[[str], Sequence[str]]
    by_hand: str
    patterns: Sequence[ErrorPattern] = ()


class PrefixTransport:
    """A Transport through a CommandPrefix: one child process of this machine a host."""

    def __init__(self, prefix: CommandPrefix, configuration: FleetConfiguration) -> None:
        self.prefix = prefix
        self._command = shlex.split(configuration.command)
        self._silence_s = configuration.answer_timeout_s
        # The scheduler's own server starts each: not all at once.
        self._starting = asyncio.Semaphore(configuration.window)

    @asynccontextmanager
    async def connect(self, host: str) -> AsyncIterator[Connection]:
        """A connection to `oncall node serve` on the host. Raises HostError."""
        check_host(host)
        await self._starting.acquire()
        try:
            child = await Child.start([*self.prefix.words(host), *self._command])
        except BaseException:
            self._starting.release()
            raise
        channel = _PrefixChannel(child, self._why_ended(host), self._starting.release)
        try:
            yield Connection(host, channel, silence_s=self._silence_s)
        finally:
            await channel.leave()

    def _why_ended(self, host: str) -> WhyEnded:
        def why(status: int, said: str) -> HostError:
            if known := first_match((*self.prefix.patterns, *_OF_COMMANDS), host, said):
                return known
            if status in (126, 127):
                return HostError("no-agent", f"{last_line(said)}; {INSTALL}")
            ended = f"{self.prefix.program} ended with status {status}"
            return HostError("error", f"{ended}: {last_line(said) or 'without a message'}")

        return why


class _PrefixChannel(ChildChannel):
    """Counts as starting until its first byte arrives, or it is closed."""

    def __init__(self, child: Child, why_ended: WhyEnded, started: Callable[[], None]) -> None:
        super().__init__(child, why_ended)
        self._started: Callable[[], None] | None = started

    async def read(self, most_bytes: int) -> bytes:
        data = await super().read(most_bytes)
        self._has_started()
        return data

    async def close(self) -> None:
        self._has_started()
        await super().close()

    def _has_started(self) -> None:
        started, self._started = self._started, None
        if started is not None:
            started()


INSTALL = "install oncall there, or set `command` under [fleet] to its path there"
# What any program that runs a command elsewhere hands on of the other side's errors.
_OF_COMMANDS = (
    pattern("no-agent", r"python[\d.]*: (command )?not found", "no Python there ({line})"),
    pattern(
        "no-agent",
        r"env: .?python[\d.]*.?: No such file|bad interpreter",
        "no Python there ({line})",
    ),
    pattern("no-agent", r"No module named .?oncall", f"{{line}}; {INSTALL}"),
    pattern("no-agent", r"command not found|: not found", f"{{line}}; {INSTALL}"),
    pattern("version", r"No such command", "oncall there is too old: upgrade it"),
)

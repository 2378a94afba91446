"""OpenSSH's configuration of a host, as `ssh -G` resolves it.

Only OpenSSH handles its configuration in full: Include, Match exec, canonical names, additions of
distributions. So `ssh -G` is run once per host (about 4 ms), and ssh_config is not parsed here.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import re
import socket
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from oncall.core.nodeset import fold_hosts
from oncall.fleet.child_process import run_program
from oncall.fleet.outcome import HostError

_AT_ONCE = 8  # `ssh -G` running at a time
_MOST_S = 20.0  # canonical names query name servers, Match exec runs a program
_MOST_HOPS = 8
_HOP = re.compile(
    r"(?:ssh://)?(?:([^@/\s]+)@)?(\[[^\]\s]+\]|[^:@/\s\[\]-][^:@/\s]*)(?::([0-9]+))?/?"
)


@dataclass(frozen=True)
class SshOptions:
    """The options in force for one host: lower-case keyword -> its values, in order.

    `words` is what to put between the program's options and `--` to reach this very host (user
    and port of a jump host); `jumps` are the hosts on the way, nearest to the console first.
    """

    host: str
    values: Mapping[str, tuple[str, ...]]
    words: tuple[str, ...] = ()
    jumps: tuple[SshOptions, ...] = ()

    def get(self, keyword: str, default: str = "") -> str:
        """The option's first value; `default` if it is not set or `none`."""
        values = self.values.get(keyword, ())
        return default if not values or values[0] == "none" else values[0]

    def number(self, keyword: str, default: int) -> int:
        """The option as an integer; `default` if it is not one."""
        value = self.get(keyword)
        return int(value) if value.isdecimal() else default

    @property
    def hostname(self) -> str:
        return self.get("hostname", self.host).strip("[]")

    @property
    def port(self) -> int:
        return self.number("port", 22)

    @property
    def user(self) -> str:
        return self.get("user", getpass.getuser())

    def expand(self, path: str) -> str:
        """A path of the configuration with `~` and OpenSSH's % tokens replaced."""
        local = socket.gethostname()
        tokens = {
            "%": "%",
            "d": str(Path.home()),
            "h": self.hostname,
            "i": str(os.getuid()),
            "k": self.get("hostkeyalias", self.host),
            "L": local.partition(".")[0],
            "l": local,
            "n": self.host,
            "p": str(self.port),
            "r": self.user,
            "u": getpass.getuser(),
        }
        expanded = re.sub(r"%(.)", lambda token: tokens.get(token[1], token[0]), path)
        return str(Path(expanded).expanduser()) if expanded.startswith("~") else expanded


def parse_options(output: str) -> dict[str, tuple[str, ...]]:
    """The output of `ssh -G`: a keyword and its value per line, some keywords repeated."""
    values: dict[str, tuple[str, ...]] = {}
    for line in output.splitlines():
        keyword, _, value = line.strip().partition(" ")
        if keyword:
            keyword = keyword.lower()
            values[keyword] = (*values.get(keyword, ()), value)
    return values


class Resolver:
    """Runs `ssh -G` once for each host and jump host, a few at a time."""

    def __init__(self, ssh: str = "ssh", options: Sequence[str] = ()) -> None:
        self.ssh = ssh
        self.options = tuple(options)
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._known: dict[tuple[str, ...], asyncio.Task[dict[str, tuple[str, ...]]]] = {}

    async def resolve(self, host: str) -> SshOptions:
        """The options in force for a host, with those of the jump hosts on the way.

        Raises HostError if the configuration is wrong or ssh is not installed.
        """
        return await self._resolve(host, (), 0)

    async def defaults(self) -> Mapping[str, tuple[str, ...]]:
        """The options in force without any configuration."""
        return await self._ask(("-F", "none"), "localhost")

    async def close(self) -> None:
        """Cancel running queries."""
        for task in self._known.values():
            task.cancel()
        await asyncio.gather(*self._known.values(), return_exceptions=True)

    async def _resolve(self, host: str, words: tuple[str, ...], depth: int) -> SshOptions:
        # As in ssh, only the configuration file applies to a jump host, no other option.
        options = self.options if depth == 0 else _file_words(self.options)
        values = await self._ask((*options, *words), host)
        direct = SshOptions(host, values, words)
        route = direct.get("proxyjump")
        if not route:
            return direct
        if depth >= _MOST_HOPS:
            raise HostError("error", f"ProxyJump loops: {host} is {depth} hops away")
        *before, last = [hop.strip() for hop in route.split(",")]
        # As in ssh, the last hop is reached through those before it, with -J.
        hop, hop_words = _hop(last)
        if before:
            hop_words += ("-J", ",".join(before))
        nearest = await self._resolve(hop, hop_words, depth + 1)
        return SshOptions(host, values, words, (*nearest.jumps, nearest))

    async def _ask(self, words: tuple[str, ...], host: str) -> dict[str, tuple[str, ...]]:
        key = (*words, "--", host)
        if key not in self._known:
            self._known[key] = _background(self._run(key, host))
        # Hosts share the answer for a jump host: an interrupted one must not cancel it.
        return await asyncio.shield(self._known[key])

    async def _run(self, words: Sequence[str], host: str) -> dict[str, tuple[str, ...]]:
        async with self._at_once:
            code, output, said = await run_program([self.ssh, "-G", "-T", *words], _MOST_S)
        if code:
            problem = said.decode(errors="replace").strip().splitlines() or ["no message"]
            raise HostError("error", f"ssh -G {fold_hosts([host])}: {problem[-1]}")
        return parse_options(output.decode(errors="replace"))


def _file_words(options: Sequence[str]) -> tuple[str, ...]:
    """The option that names ssh's configuration file, if any: the last one counts."""
    words: tuple[str, ...] = ()
    for number, word in enumerate(options):
        if word.startswith("-F"):
            words = tuple(options[number : number + 2]) if word == "-F" else (word,)
    return words


def _background(
    work: Coroutine[None, None, dict[str, tuple[str, ...]]],
) -> asyncio.Task[dict[str, tuple[str, ...]]]:
    task = asyncio.create_task(work)
    # Retrieve the exception even if all waiters were interrupted, or asyncio would log it.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def _hop(text: str) -> tuple[str, tuple[str, ...]]:
    """A hop of ProxyJump, `[user@]host[:port]`, as host and ssh's arguments for user and port."""
    match = _HOP.fullmatch(text)
    if not match:
        raise HostError("error", f"ProxyJump {text}: expected [user@]host[:port]")
    words = [*(["-l", match[1]] if match[1] else []), *(["-p", match[3]] if match[3] else [])]
    return match[2].strip("[]"), tuple(words)

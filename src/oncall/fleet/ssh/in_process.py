"""A channel to a node through AsyncSSH: no child process, one connection to each jump host.

AsyncSSH gets the options as `ssh -G` resolved them and reads no configuration of its own;
`choose.py` decides for which hosts that is enough. Host keys are always verified.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any

import asyncssh
from asyncssh.encryption import get_encryption_algs
from asyncssh.kex import get_kex_algs
from asyncssh.mac import get_mac_algs
from asyncssh.public_key import get_certificate_algs, get_public_key_algs

from oncall.fleet.outcome import HostError, TransientError, last_line
from oncall.fleet.ssh.config import SshOptions
from oncall.fleet.ssh.keys import Keys
from oncall.fleet.ssh.known_hosts import HostKeys, KnownHosts
from oncall.fleet.ssh.openssh import (
    CHANGED_KEY,
    LOGIN_REFUSED,
    REVOKED_KEY,
    TOO_MANY_KEYS,
    UNKNOWN_KEY,
    after_login,
)

_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}
_SAID_BYTES = 16 * 1024
_GOODBYE_S = 2.0
_WINDOW_BYTES = 2**20  # in flight on one channel

# OpenSSH's keyword, AsyncSSH's argument: lists of algorithms
_ALGORITHMS = (
    ("ciphers", "encryption_algs"),
    ("macs", "mac_algs"),
    ("kexalgorithms", "kex_algs"),
    ("pubkeyacceptedalgorithms", "signature_algs"),
)


class Connections:
    """Opens connections. Connections to jump hosts and files read from disk are shared."""

    def __init__(self, defaults: dict[str, tuple[str, ...]], most_s: float) -> None:
        """`defaults`: OpenSSH's options without any configuration. `most_s`: limit for a login."""
        self.keys = Keys()
        self._defaults = defaults
        self._most_s = most_s
        self._known: dict[tuple[str, ...], KnownHosts] = {}
        self._jumps: dict[tuple[str, ...], asyncio.Task[asyncssh.SSHClientConnection]] = {}

    async def open_channel(self, options: SshOptions, command: str) -> InProcessChannel:
        """Log in and start the command. Raises HostError, or TransientError."""
        connection = await self._connect(options)
        try:
            process = await connection.create_process(
                command,
                encoding=None,
                term_type=None,
                request_pty=False,
                env=_environment(options),
                window=_WINDOW_BYTES,
            )
        except (asyncssh.Error, OSError) as error:
            connection.abort()
            raise HostError("error", f"could not open a session: {_reason(error)}") from None
        except BaseException:
            connection.abort()
            raise
        return InProcessChannel(options.host, connection, process)

    async def close(self) -> None:
        """Close the connections to jump hosts and agents."""
        tasks, self._jumps = list(self._jumps.values()), {}
        for task in tasks:
            task.cancel()
        for found in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(found, asyncssh.SSHClientConnection):
                found.close()
                await found.wait_closed()
        await self.keys.close()

    async def _connect(self, options: SshOptions) -> asyncssh.SSHClientConnection:
        tunnel = await self._jump(options.jumps[-1]) if options.jumps else None
        known = self._host_keys(options)
        user = _User(self.keys, options)
        try:
            async with asyncio.timeout(options.number("connecttimeout", 0) or self._most_s):
                return await asyncssh.connect(
                    options.hostname,
                    options.port,
                    config=None,
                    tunnel=tunnel or (),
                    family=_FAMILIES.get(options.get("addressfamily"), socket.AF_UNSPEC),
                    local_addr=(bind, 0) if (bind := options.get("bindaddress")) else (),
                    username=options.user,
                    known_hosts=lambda *_: tuple(known),
                    client_factory=lambda: user,
                    **self._arguments(options, known),
                )
        except TimeoutError:
            raise HostError("timeout", "login timed out") from None
        except (asyncssh.Error, OSError, ValueError) as error:
            raise _host_error(options, known, error) from None

    async def _jump(self, options: SshOptions) -> asyncssh.SSHClientConnection:
        """The shared connection to a jump host; a new one if the last has closed."""
        key = (options.host, *options.words)
        task = self._jumps.get(key)
        if task is None or _has_gone(task):
            task = self._jumps[key] = asyncio.create_task(self._connect(options))
        try:
            # Others wait for it too: an interrupted waiter must not cancel it.
            return await asyncio.shield(task)
        except HostError as error:
            raised = TransientError if isinstance(error, TransientError) else HostError
            raise raised(error.kind, f"jump host {options.host}: {error}") from None

    def _host_keys(self, options: SshOptions) -> HostKeys:
        files = tuple(
            path
            for keyword in ("userknownhostsfile", "globalknownhostsfile")
            for value in options.values.get(keyword, ())
            for path in _words(value)
            if path != "none"
        )
        if files not in self._known:
            self._known[files] = KnownHosts([options.expand(path) for path in files])
        return self._known[files].of(options)

    def _arguments(self, options: SshOptions, known: HostKeys) -> dict[str, Any]:
        """The other arguments for AsyncSSH; nothing is left to its own configuration."""
        arguments: dict[str, Any] = {
            "host_key_alias": options.get("hostkeyalias") or None,
            "x509_trusted_certs": None,
            "client_keys": None,  # asked of `_User`
            "agent_path": None,
            "preferred_auth": ["publickey"],
            "host_based_auth": False,
            "kbdint_auth": False,
            "password_auth": False,
            "gss_kex": False,
            "gss_auth": False,
            "agent_forwarding": False,
            "compression_algs": _compression(options),
            "tcp_keepalive": options.get("tcpkeepalive", "yes") == "yes",
            "keepalive_interval": options.number("serveraliveinterval", 0) or 15,
            "keepalive_count_max": options.number("serveralivecountmax", 3),
            "login_timeout": 0,
            "server_host_key_algs": self._host_key_algorithms(options, known),
        }
        for keyword, argument in _ALGORITHMS:
            # AsyncSSH's own order is faster; use it unless another is configured.
            if options.values.get(keyword) != self._defaults.get(keyword):
                names = supported(keyword, options.get(keyword))
                # For our keys; choose.py checked that certificates may use the same.
                arguments[argument] = [name for name in names if "-cert-" not in name]
        return arguments

    def _host_key_algorithms(self, options: SshOptions, known: HostKeys) -> list[str]:
        """The permitted algorithms for which a key is known; other keys cannot be verified."""
        permitted = options.get("hostkeyalgorithms").split(",")
        wanted = {name for key in known.host_keys for name in key.sig_algorithms}
        kept = [
            name
            for name in permitted
            if name.encode() in wanted or (known.authorities and "-cert-" in name)
        ]
        offered = set(supported("hostkeyalgorithms", options.get("hostkeyalgorithms")))
        return [name for name in kept if name in offered] or sorted(offered)


class InProcessChannel:
    """A byte stream to and from a command, on its own AsyncSSH connection."""

    def __init__(
        self,
        host: str,
        connection: asyncssh.SSHClientConnection,
        process: asyncssh.SSHClientProcess[bytes],
    ) -> None:
        self.host = host
        self._connection = connection
        self._process = process
        self._said = bytearray()
        self._listening = asyncio.create_task(self._listen())

    async def write(self, data: bytes) -> None:
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except asyncssh.Error as error:
            raise BrokenPipeError(_reason(error)) from None

    async def read(self, most_bytes: int) -> bytes:
        try:
            return await self._process.stdout.read(most_bytes)
        except asyncssh.Error as error:
            raise HostError("error", f"connection lost: {_reason(error)}") from None

    async def failure(self) -> HostError | None:
        """Why the command ended, if it did."""
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await asyncio.shield(self._listening)
                await self._process.wait_closed()
        except (TimeoutError, asyncssh.Error):
            return None
        status = self._process.exit_status
        if status is None:
            return HostError("error", "connection lost")
        return after_login(self.host, status, self._error_output()) if status else None

    async def close(self) -> None:
        """Disconnect; the command's stdin ends, and with it the command."""
        self._listening.cancel()
        self._connection.abort()
        await self._connection.wait_closed()
        with suppress(asyncio.CancelledError):
            await self._listening

    async def _listen(self) -> None:
        with suppress(asyncssh.Error, OSError):
            while data := await self._process.stderr.read(4096):
                self._said += data
                del self._said[:-_SAID_BYTES]

    def _error_output(self) -> str:
        return self._said.decode(errors="replace")


class _User(asyncssh.SSHClient):
    """Offers the configured keys, once."""

    def __init__(self, keys: Keys, options: SshOptions) -> None:
        self._keys = keys
        self._options = options
        self._offered = False

    async def public_key_auth_requested(self) -> list[asyncssh.SSHKeyPair] | None:
        if self._offered:
            return None
        self._offered = True
        return await self._keys.pairs(self._options)


def supported(keyword: str, value: str) -> list[str]:
    """The algorithms of a list as `ssh -G` prints it that AsyncSSH supports."""
    match keyword:
        case "ciphers":
            known = get_encryption_algs()
        case "macs":
            known = get_mac_algs()
        case "kexalgorithms":
            known = get_kex_algs()
        case _:
            known = [*get_public_key_algs(), *get_certificate_algs()]
    return [name for name in value.split(",") if name.encode() in known]


def _environment(options: SshOptions) -> dict[str, str]:
    """The variables of SendEnv and SetEnv; SetEnv wins."""
    patterns = [pattern for value in options.values.get("sendenv", ()) for pattern in value.split()]
    environment: dict[str, str] = {}
    for pattern in patterns:
        environment |= {
            name: value for name, value in os.environ.items() if fnmatchcase(name, pattern)
        }
    for value in options.values.get("setenv", ()):
        name, _, text = value.partition("=")
        environment[name] = text
    return environment


def _compression(options: SshOptions) -> list[str]:
    zlib = ["zlib@openssh.com", "zlib"]
    return [*zlib, "none"] if options.get("compression") == "yes" else ["none", *zlib]


def _words(value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError:
        return value.split()


def _has_gone(task: asyncio.Task[asyncssh.SSHClientConnection]) -> bool:
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or task.result().is_closed()


def _reason(error: Exception) -> str:
    return last_line(getattr(error, "reason", "") or str(error)) or type(error).__name__


def _host_error(options: SshOptions, known: HostKeys, error: Exception) -> HostError:
    """AsyncSSH's exception as a reason that a person can act on."""
    reason = _reason(error)
    match error:
        case asyncssh.HostKeyNotVerifiable():
            if "revoked" in reason:
                return HostError("hostkey", REVOKED_KEY)
            advice = CHANGED_KEY if known else UNKNOWN_KEY
            return HostError("hostkey", advice.format(host=options.host))
        case asyncssh.PermissionDenied():
            line = f"{options.user}@{options.hostname}: Permission denied"
            return HostError("auth", LOGIN_REFUSED.format(line=line))
        case asyncssh.KeyExchangeFailed():
            # Without a known key of the host, no algorithm can be agreed on.
            return HostError("hostkey" if "host key" in reason.lower() else "error", reason)
        case asyncssh.ChannelOpenError():
            return HostError("refused", f"the jump host cannot reach it: {reason}")
        case asyncssh.ConnectionLost() | ConnectionResetError() | BrokenPipeError():
            return TransientError("refused", f"connection closed before the login: {reason}")
        case asyncssh.DisconnectError():
            if "Too many authentication failures" in reason:
                return HostError("auth", TOO_MANY_KEYS)
            return HostError("error", reason)
        case socket.gaierror():
            return HostError("refused", f"unknown host {options.hostname}: {error.strerror}")
        case OSError():
            why = os.strerror(error.errno) if error.errno else reason
            return HostError("refused", f"{options.hostname} port {options.port}: {why}")
        case _:
            return HostError("error", reason)

"""A channel to a node through the system's ssh: one child process per node.

The user's configuration applies: agents, jump hosts, certificates, live masters. Only options that
a channel without a terminal needs are set here, and none that affects the host key check.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Sequence

from oncall.fleet.child_process import Child, ChildChannel
from oncall.fleet.outcome import HostError, first_match, last_line, pattern
from oncall.fleet.ssh.config import SshOptions

# Turn the stderr of OpenSSH's client into reasons that a person can act on.

CHANGED_KEY = (
    "host key differs from the one in known_hosts: the node was reinstalled, or another machine "
    "answers in its place. Find out which before you remove the old key (ssh-keygen -R {host})"
)
UNKNOWN_KEY = "host key is not in known_hosts: log in once (ssh {host}) and verify it"
REVOKED_KEY = "host key is marked as revoked in known_hosts"
LOGIN_REFUSED = "{line}: the node accepts none of your keys; check that it is loaded (ssh-add -l)"
TOO_MANY_KEYS = "too many keys offered: set IdentityFile for this host"

_PATTERNS = (
    pattern(
        "hostkey", r"REMOTE HOST IDENTIFICATION HAS CHANGED|host key .* has changed", CHANGED_KEY
    ),
    pattern("hostkey", r"REVOKED HOST KEY|host key .* revoked", REVOKED_KEY),
    pattern("hostkey", r"No .* host key is known for|authenticity of host", UNKNOWN_KEY),
    pattern("hostkey", r"Host key verification failed", UNKNOWN_KEY),
    pattern("hostkey", r"no matching host key type|Host certificate .*(invalid|not)"),
    pattern("auth", r"Permission denied \(", LOGIN_REFUSED),
    pattern("auth", r"Too many authentication failures", TOO_MANY_KEYS),
    pattern("auth", r"No supported authentication methods|account .* expired|This account is"),
    pattern("refused", r"Could not resolve hostname", "unknown host: {line}"),
    pattern("refused", r"Connection refused|No route to host|Network is unreachable"),
    pattern("refused", r"administratively prohibited|open failed|stdio forwarding failed"),
    pattern("error", r"Bad configuration option|Bad owner or permissions|unsupported option"),
    pattern("timeout", r"timed out|Operation timed out|Timeout, server .* not responding"),
    pattern(
        "refused",
        r"kex_exchange_identification|ssh_exchange_identification|Connection (closed|reset) by"
        r"|banner exchange|Connection to .* closed by remote host|Broken pipe",
        "connection closed before the login; the server may have too many at once",
        transient=True,
    ),
)


def classify(host: str, said: str) -> HostError:
    """Why ssh exited with status 255, from its stderr."""
    known = first_match(_PATTERNS, host, said)
    return known or HostError("error", last_line(said) or "ssh failed without a message")


def after_login(host: str, status: int, said: str) -> HostError:
    """Why the command that ssh ran ended with this status, before its answer did."""
    if status == 127 or re.search(r"command not found|: not found", said):
        return HostError("no-agent", f"not in its PATH ({last_line(said)})")
    if status == 126:
        return HostError("no-agent", f"not executable ({last_line(said)})")
    if "No such command" in said:
        return HostError("version", "oncall on the node is too old: upgrade it there")
    if status == 255:
        error = classify(host, said)
        # After the login, a lost connection is no sign of a busy server.
        return HostError("error" if error.kind == "refused" else error.kind, str(error))
    if status < 0:
        return HostError("error", f"connection lost: ssh was killed by signal {-status}")
    return HostError("error", f"oncall exited with status {status}: {last_line(said)}")


# ssh prints this on stderr, at VERBOSE, after the login.
_LOGGED_IN = b"Authenticated to "

_OPTIONS = (
    "-T",  # bytes, not a terminal
    "-x",
    "-a",  # a node needs neither our display nor our keys
    "-oBatchMode=yes",  # never prompt
    "-oLogLevel=VERBOSE",  # prints when the login is done, or why it failed
    "-oControlMaster=no",  # uses a live master, leaves none behind
    "-oClearAllForwardings=yes",  # the user's own session may hold those ports
    "-oPermitLocalCommand=no",  # its output would mix with the answer
    "-oRemoteCommand=none",
    "-oSessionType=default",
    "-oForkAfterAuthentication=no",
    "-oStdinNull=no",
)


def arguments(
    ssh: str, more: Sequence[str], options: SshOptions, command: str, connect_timeout_s: float
) -> list[str]:
    """The argument list that runs `command` on a host. The user's options `more` come first: ssh
    uses the first value of each option."""
    words = [ssh, *more, *options.words, *_OPTIONS]
    if not options.get("connecttimeout"):
        words.append(f"-oConnectTimeout={max(1, math.ceil(connect_timeout_s))}")
    if options.number("serveraliveinterval", 0) == 0:
        words += ["-oServerAliveInterval=15", "-oServerAliveCountMax=2"]
    return [*words, "--", options.host, command]


class OpenSshChannel(ChildChannel):
    """A byte stream to and from a command that a child ssh runs on a host."""

    def __init__(self, host: str, child: Child) -> None:
        super().__init__(child, lambda status, said: after_login(host, status, said))
        self.host = host
        self._logged_in = asyncio.Event()

    async def login(self) -> None:
        """Wait for the login. Raises HostError, or TransientError if a retry may help."""
        login = asyncio.create_task(self._logged_in.wait())
        try:
            await asyncio.wait((login, self._listening), return_when=asyncio.FIRST_COMPLETED)
        finally:
            login.cancel()
        if not self._logged_in.is_set():
            raise classify(self.host, self._error_output())

    def _stderr_grew(self) -> None:
        if _LOGGED_IN in self._said:
            self._logged_in.set()

    def _error_output(self) -> str:
        """The stderr, without the lines ssh prints for a successful login and session."""
        lines = super()._error_output().split("\n")
        return "\n".join(line for line in lines if not line.startswith(_CHATTER))


_CHATTER = ("Authenticated to ", "Transferred: ", "Bytes per second: ", "debug", "Warning: Perm")


async def open_channel(argv: Sequence[str], host: str, *, master_alive: bool) -> OpenSshChannel:
    """Start ssh and wait for its login, which a live master has already done.

    Raises HostError, or TransientError if a retry may help; the child has then ended.
    """
    channel = OpenSshChannel(host, await Child.start(argv))
    try:
        if not master_alive:
            await channel.login()
    except BaseException:
        await channel.close()
        raise
    return channel

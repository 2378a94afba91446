"""A channel to a node through the system's ssh: one child process per node.

The user's configuration applies: agents, jump hosts, certificates, live masters. Only options that
a channel without a terminal needs are set here, and none that affects the host key check.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from oncall.fleet.child_channel import ChildChannel
from oncall.fleet.child_process import Child
from oncall.fleet.ssh.config import SshOptions
from oncall.fleet.ssh.errors import after_login, classify

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

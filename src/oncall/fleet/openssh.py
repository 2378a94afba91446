"""A channel to a node through the system's ssh: one child process a node.

Everything that the user has configured holds: agents, jump hosts, certificates, masters that are
alive. What is set here is only what a channel without a person needs, and nothing ever touches
how host keys are checked.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress

from oncall.fleet.outcome import HostError
from oncall.fleet.ssh_child import Child
from oncall.fleet.ssh_config import SshOptions
from oncall.fleet.ssh_errors import after_login, classify

_SAID_BYTES = 16 * 1024  # of stderr that is kept
_GOODBYE_S = 2.0

# ssh says this on stderr, at VERBOSE, once the login is done.
_LOGGED_IN = b"Authenticated to "

_OPTIONS = (
    "-T",  # bytes, not a terminal
    "-x",
    "-a",  # a node needs neither our screen nor our keys
    "-oBatchMode=yes",  # never ask a person: 512 questions are no dialogue
    "-oLogLevel=VERBOSE",  # tells when the login is done, and why it failed
    "-oControlMaster=no",  # uses a master that is alive, leaves none behind
    "-oClearAllForwardings=yes",  # the user's own session holds those ports
    "-oPermitLocalCommand=no",  # its output would mix with the answer
    "-oRemoteCommand=none",
    "-oSessionType=default",
    "-oForkAfterAuthentication=no",
    "-oStdinNull=no",
)


def arguments(
    ssh: str, more: Sequence[str], options: SshOptions, command: str, connect_timeout_s: float
) -> list[str]:
    """The argument list that runs `command` on a host. The user's `more` come first: of each
    option ssh takes the first value it sees."""
    words = [ssh, *more, *options.words, *_OPTIONS]
    if not options.get("connecttimeout"):
        words.append(f"-oConnectTimeout={max(1, math.ceil(connect_timeout_s))}")
    if options.number("serveraliveinterval", 0) == 0:
        words += ["-oServerAliveInterval=15", "-oServerAliveCountMax=2"]
    return [*words, "--", options.host, command]


class OpenSshChannel:
    """Bytes to and from a command that a child ssh runs on a host."""

    def __init__(self, host: str, child: Child) -> None:
        self.host = host
        self._child = child
        self._said = bytearray()
        self._logged_in = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())

    async def login(self) -> None:
        """Wait for the login. Raises HostError, or TransientError where a try may help."""
        login = asyncio.create_task(self._logged_in.wait())
        try:
            await asyncio.wait((login, self._listening), return_when=asyncio.FIRST_COMPLETED)
        finally:
            login.cancel()
        if not self._logged_in.is_set():
            raise classify(self.host, self._told())

    async def write(self, data: bytes) -> None:
        self._child.input.write(data)
        await self._child.input.drain()

    async def read(self, most_bytes: int) -> bytes:
        try:
            return await self._child.output.read(most_bytes)
        except ConnectionError:
            return b""  # it left without reading what was sent: an end, and `failure` knows why

    async def failure(self) -> HostError | None:
        """Why the command ended, where it did."""
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await asyncio.shield(self._listening)
                status = await self._child.status()
        except TimeoutError:
            return None
        return after_login(self.host, status, self._told()) if status else None

    async def close(self) -> None:
        """End the child and whatever it started; nothing of it is left."""
        self._child.end()
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def _listen(self) -> None:
        """Keep the last of what ssh says, and notice the login."""
        with suppress(OSError):
            while data := await self._child.said.read(4096):
                self._said += data
                if _LOGGED_IN in self._said:
                    self._logged_in.set()
                del self._said[:-_SAID_BYTES]

    def _told(self) -> str:
        """What was said, less what ssh itself says of a login and a session that went well."""
        lines = self._said.decode(errors="replace").replace("\r", "").split("\n")
        return "\n".join(line for line in lines if not line.startswith(_CHATTER))


_CHATTER = ("Authenticated to ", "Transferred: ", "Bytes per second: ", "debug", "Warning: Perm")


async def open_channel(argv: Sequence[str], host: str, *, master_alive: bool) -> OpenSshChannel:
    """Start ssh and wait for its login, which a master that is alive has behind it.

    Raises HostError, or TransientError where another try may help; then the child is gone.
    """
    channel = OpenSshChannel(host, await Child.start(argv))
    try:
        if not master_alive:
            await channel.login()
    except BaseException:
        await channel.close()
        raise
    return channel

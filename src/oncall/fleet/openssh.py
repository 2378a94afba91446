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
from oncall.fleet.ssh_config import SshOptions, end_process
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

    def __init__(self, host: str, process: asyncio.subprocess.Process) -> None:
        self.host = host
        self._process = process
        self._said = bytearray()
        self._logged_in = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())

    async def established(self, *, at_once: bool) -> None:
        """Wait for the login (`at_once`: a master that is alive has it behind it).

        Raises HostError, or TransientError where another try may help.
        """
        if at_once:
            return
        login = asyncio.create_task(self._logged_in.wait())
        await asyncio.wait((login, self._listening), return_when=asyncio.FIRST_COMPLETED)
        login.cancel()
        if not self._logged_in.is_set():
            await self._process.wait()
            raise classify(self.host, self._told())

    async def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        await self._process.stdin.drain()

    async def read(self, most_bytes: int) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.read(most_bytes)

    async def failure(self) -> HostError | None:
        """Why the command ended, where it did."""
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await asyncio.shield(self._listening)
                status = await self._process.wait()
        except TimeoutError:
            return None
        if status == 0:
            return None
        if not self._logged_in.is_set():
            return classify(self.host, self._told())
        return after_login(self.host, status, self._told())

    async def close(self) -> None:
        """End the child and whatever it started; nothing of it is left."""
        self._listening.cancel()
        await end_process(self._process)
        if self._process.stdin is not None:
            self._process.stdin.close()
        with suppress(asyncio.CancelledError):
            await self._listening

    async def _listen(self) -> None:
        """Keep the last of what ssh says, and notice the login."""
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(4096):
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
    """Start ssh and wait for its login. Raises HostError; then the child is gone."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # A group of its own: Ctrl-C is ours to handle, and all of it can be ended together.
            start_new_session=True,
        )
    except FileNotFoundError:
        raise HostError("error", f"there is no {argv[0]} here: install OpenSSH's client") from None
    except OSError as error:
        raise HostError("error", f"{argv[0]}: {error.strerror}") from None
    channel = OpenSshChannel(host, process)
    try:
        await channel.established(at_once=master_alive)
    except BaseException:
        await channel.close()
        raise
    return channel

"""A channel over a child process, without sshd."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from oncall.fleet.child_process import Child
from oncall.fleet.outcome import HostError
from oncall.fleet.ssh.openssh import OpenSshChannel
from oncall.fleet.transport import Connection
from oncall.node.store.wire import Request


def test_leaving_without_reading_is_an_end_that_is_reported(tmp_path: Path) -> None:
    """What was sent lies unread when the other side closes: the kernel reports a reset."""
    asked = tmp_path / "asked"
    program = f"while ! test -e {asked}; do sleep 0.01; done; echo certified >&2; exit 9"

    async def ask() -> str:
        channel = OpenSshChannel("gpu001", await Child.start(["sh", "-c", program]))
        try:
            await channel.write(b"hello\n")
            asked.touch()
            assert await channel.read(1024) == b""
            return str(await channel.failure())
        finally:
            await channel.close()

    assert "certified" in asyncio.run(ask())


def test_a_connection_that_ends_after_an_answer_was_cut_and_spoke_no_nonsense() -> None:
    program = """read ask; echo '{"end": {"node": "gpu001"}}'; read ask; kill -9 $$"""

    async def ask() -> HostError:
        channel = OpenSshChannel("gpu001", await Child.start(["sh", "-c", program]))
        connection = Connection("gpu001", channel)
        try:
            assert (await connection.ask(Request("clock"))).status == {"node": "gpu001"}
            with pytest.raises(HostError) as cut:
                await connection.ask(Request("clock"))
            return cut.value
        finally:
            await channel.close()

    assert asyncio.run(ask()).kind == "error"

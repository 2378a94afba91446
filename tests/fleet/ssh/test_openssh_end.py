"""A command that left without reading its question: an end, which what ssh said explains."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from oncall.fleet.ssh.openssh import OpenSshChannel


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError])
def test_a_pipe_that_closed_is_an_end(error: type[ConnectionError]) -> None:
    async def read() -> bytes:
        output = asyncio.StreamReader()
        output.set_exception(error())
        channel: Any = OpenSshChannel.__new__(OpenSshChannel)
        channel._child = SimpleNamespace(output=output)
        return bytes(await channel.read(10))

    assert asyncio.run(read()) == b""

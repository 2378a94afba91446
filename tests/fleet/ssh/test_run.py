"""Commands run on a node for the reader, over both transports."""

from __future__ import annotations

from asking import Fleet

from oncall.fleet.ssh.transport import SshTransport


def run(fleet: Fleet, command: str, most_bytes: int = 10_000) -> str:
    async def ask(transport: SshTransport) -> str:
        return await transport.run("quick", command, most_bytes)

    return fleet.run(ask)


def test_what_a_command_prints_comes_back_with_its_errors(fleet: Fleet) -> None:
    assert run(fleet, "echo one; echo two >&2; cat").split() == ["one", "two"]


def test_endless_output_is_cut(fleet: Fleet) -> None:
    assert len(run(fleet, "yes", 5000)) == 5000

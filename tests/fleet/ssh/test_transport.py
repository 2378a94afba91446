"""Both transports against every alias: the same answers, the same reasons."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from asking import Fleet
from processes import left_with

from oncall.core.errors import UsageError
from oncall.fleet.outcome import HostError
from oncall.fleet.ssh.choose import Choice
from oncall.fleet.ssh.transport import SshTransport


@pytest.mark.parametrize(
    ("host", "kind", "words"),
    [
        ("impostor", "hostkey", "differs from the one in known_hosts"),
        ("dead", "refused", "refused"),
        ("old", "version", "protocol 0"),
        ("bare", "no-agent", "PATH"),
        ("stranger", "auth", "ssh-add"),
        ("nowhere.invalid", "refused", "nowhere.invalid"),
    ],
)
def test_reason_is_reported(fleet: Fleet, host: str, kind: str, words: str) -> None:
    options = () if host != "nowhere.invalid" else ("-oHostName=nowhere.invalid",)
    error = fleet.refusal(host, *options)
    assert error.kind == kind, error
    assert words in str(error)


def test_silent_host_costs_its_timeout_and_no_more(fleet: Fleet) -> None:
    error = fleet.refusal("hanging", connect_timeout_s=1.0)
    assert error.kind == "timeout"


def test_connection_is_kept_for_several_requests(fleet: Fleet) -> None:
    log = fleet.loopback.log

    async def ask(transport: SshTransport) -> None:
        async with transport.connect("quick") as connection:
            for _ in range(3):
                await connection.hello()
            clock = await connection.measure_clock()
            # One machine, one clock: the truth lies within the error.
            assert abs(clock.offset_ns) <= clock.error_ns

    before = log.read_text().count("Accepted publickey")
    fleet.run(ask)
    assert log.read_text().count("Accepted publickey") == before + 1


def test_nothing_is_left_behind(fleet: Fleet) -> None:
    assert fleet.hello("inner").status["node"] == "inner"
    assert left_with(str(fleet.loopback.config)) == []
    assert left_with(f"ONCALL_DATA_DIR={fleet.loopback.nodes['inner'].data}") == []


@pytest.mark.parametrize("host", ["hanging", "inner"])
@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.1, 0.4])
def test_interrupted_at_any_moment_leaves_nothing_behind(
    fleet: Fleet, host: str, after_s: float
) -> None:
    async def ask(transport: SshTransport) -> None:
        async def hello() -> None:
            async with transport.connect(host) as connection:
                await connection.hello()

        task = asyncio.create_task(hello())
        await asyncio.sleep(after_s)  # wherever it is then: there is no wrong moment
        task.cancel()
        with suppress(asyncio.CancelledError, HostError):
            await task

    fleet.run(ask)
    assert left_with(str(fleet.loopback.config)) == []


def test_name_that_looks_like_an_option_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="option"):
        fleet.hello(f"-oProxyCommand=touch {tmp_path}/made")
    assert not (tmp_path / "made").exists()


def test_jump_host_sees_one_login_for_twenty_targets(fleet: Fleet) -> None:
    async def ask(transport: SshTransport) -> list[str]:
        async def node(host: str) -> str:
            async with transport.connect(host) as connection:
                return str((await connection.hello()).status["node"])

        return await asyncio.gather(*(node(host) for host in inner))

    inner = list(fleet.loopback.more_inner)
    log = fleet.loopback.bastion_log
    before = log.read_text().count("Accepted publickey")
    assert fleet.run(ask) == inner
    logins = log.read_text().count("Accepted publickey") - before
    # OpenSSH logs in once a target, unless the user has put a master on the jump host.
    assert logins == (1 if fleet.transport == "in-process" else len(inner))


def test_jump_host_that_is_dead_is_named(fleet: Fleet) -> None:
    error = fleet.refusal("quick", "-oProxyJump=dead")
    assert error.kind == "refused"
    assert "refused" in str(error)


def test_transport_is_chosen_or_reported(fleet: Fleet) -> None:
    async def choice(transport: SshTransport) -> Choice:
        return await transport.choice(await transport.resolve("gpu001"))

    assert fleet.run(choice, transport="auto").transport == "in-process"
    asks_more = "-oStrictHostKeyChecking=accept-new"
    output = fleet.run(choice, asks_more, transport="auto")
    assert output == Choice("openssh", "stricthostkeychecking accept-new")
    output = fleet.run(choice, asks_more)
    assert output.transport == fleet.transport
    # A transport that was demanded is taken, and doctor says what of the configuration is lost.
    assert ("ignoring" in output.why) == (fleet.transport == "in-process")

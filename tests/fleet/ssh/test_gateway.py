"""A gateway behind a real sshd, which asks its nodes over a real sshd."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from asking import Fleet
from loopback import PLAIN

from oncall.fleet.branch import Tree
from oncall.fleet.gather import Gather, Window
from oncall.fleet.outcome import Outcome
from oncall.fleet.ssh.transport import SshTransport


def greeted(
    fleet: Fleet, folder: Path, gateway: str
) -> tuple[dict[str, Outcome], set[str], dict[str, str]]:
    """What became of the plain nodes behind a gateway, whose clocks are known, and which gateways
    failed."""
    configuration = fleet.configuration()
    settings = folder / "oncall"
    settings.mkdir(exist_ok=True)
    words = ", ".join(f'"{word}"' for word in configuration.ssh_options)
    (settings / "config.toml").write_text(
        f'[fleet]\ntransport = "{fleet.transport}"\nssh_options = [{words}]\n'
    )
    command = f"env XDG_CONFIG_HOME={folder} oncall node gather"
    to_gateways = SshTransport(replace(configuration, command=command, answer_timeout_s=60.0))
    tree = Tree(to_gateways, dict.fromkeys(PLAIN, gateway))

    async def work(direct: SshTransport) -> tuple[dict[str, Outcome], set[str], dict[str, str]]:
        gather = Gather(direct, PLAIN, Window(), folder, patience_s=40, tree=tree)
        async with gather:
            outcomes = await gather.greet()
            return dict(outcomes), set(gather.answers.clocks), dict(gather.lost_gateways)

    return fleet.run(work)


def test_nodes_behind_a_gateway_answer_over_ssh(fleet: Fleet, tmp_path: Path) -> None:
    outcomes, clocks, lost = greeted(fleet, tmp_path, "gpu001")
    assert {name: one.kind for name, one in outcomes.items()} == dict.fromkeys(PLAIN, "ok")
    assert {one.node for one in outcomes.values()} == set(PLAIN)
    assert clocks == set(PLAIN)
    assert not lost


def test_a_gateway_without_oncall_and_one_that_is_dead(fleet: Fleet, tmp_path: Path) -> None:
    for gateway, why in (("bare", "oncall"), ("dead", "refused")):
        outcomes, _, lost = greeted(fleet, tmp_path, gateway)
        assert {name: one.kind for name, one in outcomes.items()} == dict.fromkeys(PLAIN, "ok")
        assert why in lost[gateway].lower()


def test_a_key_that_may_only_serve_gathers_from_nobody(fleet: Fleet, tmp_path: Path) -> None:
    outcomes, _, lost = greeted(fleet, tmp_path, "locked")
    assert {name: one.kind for name, one in outcomes.items()} == dict.fromkeys(PLAIN, "ok")
    assert "may run" in lost["locked"]

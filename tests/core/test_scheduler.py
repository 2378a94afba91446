"""The command that takes a bad node out of service: printed for whom it may help, never run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.findings import network_finding

from oncall.core.diagnosis import Blame, Finding
from oncall.core.scheduler import MOST_NODES, Scheduler, with_removal

SLURM = Scheduler("slurm")
NIC = network_finding(Blame("nic", {"node": "gpu003", "nic": "mlx5_0"}), next=("Reseat the cable",))


def advice(finding: Finding, scheduler: Scheduler = SLURM) -> tuple[str, ...]:
    (found,) = with_removal([finding], scheduler)
    assert found.next[0] == "Reseat the cable"
    return found.next[1:]


def test_slurm_drains_or_excludes() -> None:
    drain, exclude = advice(NIC)
    assert "`scontrol update nodename=gpu003 state=drain reason='oncall: network NIC'`" in drain
    assert "`sbatch --exclude=gpu003 JOB_SCRIPT`" in exclude


def test_several_nodes_are_one_command() -> None:
    blame = tuple(Blame("node", {"node": f"gpu{number:03}"}) for number in (3, 4, 5))
    drain, _ = advice(replace(NIC, blame=blame))
    assert "nodename='gpu[003-005]'" in drain


@pytest.mark.parametrize(
    "finding",
    [
        replace(NIC, severity="info"),
        replace(NIC, explained_by="F2"),
        replace(NIC, fault_class="hang", blame=(Blame("rank", {"rank": 5, "node": "gpu003"}),)),
        replace(NIC, blame=(Blame("link", {"link": "leaf1"}),)),
        replace(NIC, blame=tuple(Blame("node", {"node": f"g{n}"}) for n in range(MOST_NODES + 1))),
    ],
    ids=["info", "consequence", "a rank's own fault", "no node", "too many nodes"],
)
def test_no_command_where_the_node_is_not_at_fault(finding: Finding) -> None:
    assert advice(finding) == ()


def test_kubernetes_cordons_the_node_of_the_pod() -> None:
    scheduler = Scheduler("kubernetes", {"llama-worker-2": "machine-2"})
    assert advice(NIC, scheduler) == ()  # which node that is, is not known
    (cordon,) = advice(NIC, scheduler.named({"gpu003": "llama-worker-2"}))
    assert "`kubectl cordon machine-2`" in cordon
    by_node = replace(NIC, blame=(Blame("gpu", {"node": "machine-2", "gpu": 3}),))
    assert "`kubectl cordon machine-2`" in advice(by_node, scheduler)[0]


def test_a_hostile_name_is_not_typed() -> None:
    hostile = replace(NIC, blame=(Blame("node", {"node": "$(reboot)\n"}),))
    drain, _ = advice(hostile)
    assert "$(reboot)" not in drain.split("`")[1].replace("'$(reboot)'", "")

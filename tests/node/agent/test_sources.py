"""Which sources there are, and a collector with all of them: what is here, and what is not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from oncall.node.agent.agent import Agent
from oncall.node.agent.recorder import Recorder
from oncall.node.agent.service import make_sources
from oncall.node.common.config import Configuration
from oncall.node.common.declaration import declared
from oncall.node.common.log import Log

from .. import sysfs

Rows = Callable[[str], list[tuple[object, ...]]]


def collect_once(config: Configuration, root: Path) -> str:
    """What a collector of its own says while it reads all there is below `root`, once."""
    settings = config.data_dir.parent / "collect.toml"
    settings.write_text(f'node = "gpu017"\nroot = "{root}"\nkeep_free = "0 B"\n')
    output = subprocess.run(
        [
            *(sys.executable, "-m", "oncall.cli.main", "collect", "--once"),
            *("--config", str(settings)),
            *("--data-dir", str(config.data_dir), "--run-dir", str(config.run_dir)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert output.returncode == 0, output.stderr
    assert "a bug" not in output.stderr
    return output.stderr


def test_every_source_is_collected_unless_reported_otherwise(config: Configuration) -> None:
    made = make_sources(replace(config, sources=Configuration().sources), {})
    try:
        assert [source.name for source in made] == list(declared())
    finally:
        for source in made:
            source.close()


def test_devices_in_hardware_and_in_software_reach_a_shard(
    config: Configuration, sealed_rows: Rows, tmp_path: Path
) -> None:
    root = tmp_path / "node"
    for number in range(2):
        sysfs.mlx5(root, number)
    sysfs.rxe(root, 7)
    sysfs.counter(root, "counters/port_xmit_data", 2**31, "mlx5_1")
    sysfs.counter(root, "hw_counters/completer_retry_err", 4, "rxe7")
    collect_once(config, root)
    assert sealed_rows(
        "SELECT nic, port, tx_bytes, retransmits, cnp_sent, pcie_width, rate_bytes_per_s "
        "FROM nics QUALIFY row_number() OVER (PARTITION BY nic ORDER BY at_ns) = 1 ORDER BY nic"
    ) == [
        ("mlx5_0", 1, 0, 0, 0, 16, 50 * 10**9),
        ("mlx5_1", 1, 2**33, 0, 0, 16, 50 * 10**9),
        ("rxe7", 1, 0, 4, None, None, 1_250_000_000),
    ]
    assert sealed_rows(
        "SELECT DISTINCT device, pci_bus, pcie_port, interface FROM devices "
        "WHERE kind = 'nic' ORDER BY device"
    ) == [
        ("mlx5_0", "0000:18:00.0", "0000:16:00.0", "eth0"),
        ("mlx5_1", "0000:20:00.0", "0000:1e:00.0", "eth1"),
        ("rxe7", None, None, "veth7"),
    ]
    ((rows,),) = sealed_rows("SELECT max(rows) FROM collectors WHERE source = 'rdma_nics'")
    assert isinstance(rows, int) and rows >= 3


def test_a_source_that_cannot_be_made_is_said_and_the_others_go_on(
    config: Configuration, sealed_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> object:
        raise OSError(98, "Address already in use")

    monkeypatch.setattr("oncall.node.rdma.rdma_nics.RdmaNicSource", refuse)
    log = Log()
    changed = replace(config, sources=("rdma_nics", "hosts"))
    agent = Agent(changed, make_sources(changed, {}), Recorder(changed, log), log)
    agent.once()
    assert sealed_rows("SELECT DISTINCT source, error FROM collectors WHERE error IS NOT NULL") == [
        ("rdma_nics", "collects nothing: [Errno 98] Address already in use")
    ]
    ((rows,),) = sealed_rows("SELECT count(*) FROM hosts")
    assert isinstance(rows, int) and rows > 0

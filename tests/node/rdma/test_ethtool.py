"""Drivers' statistics by ioctl, of interfaces that this kernel really has."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.node.rdma.ethtool import Statistics, names_in

PAIR = ("oncall0", "oncall1")
READ_PAIR = f"""
import json
from oncall.node.rdma.ethtool import Statistics
statistics = Statistics({{"peer_ifindex", "no_such_statistic"}})
print(json.dumps([statistics.read(name) for name in {PAIR} for _ in range(2)]))
statistics.close()
"""


@pytest.fixture
def statistics() -> Iterator[Statistics]:
    reader = Statistics({"rx_packets", "tx_packets", "rx_queue_0_packets"})
    yield reader
    reader.close()


def test_the_loopback_interface_has_no_statistics(statistics: Statistics) -> None:
    assert statistics.read("lo") == {}


@pytest.mark.parametrize("name", ["nowhere0", "a" * 40])
def test_an_interface_that_is_not_there_is_an_error(statistics: Statistics, name: str) -> None:
    with pytest.raises(OSError, match="No such device"):
        statistics.read(name)


def test_a_virtual_pair_tells_the_wanted_statistics(tmp_path: Path) -> None:
    """In a network namespace of its own, so that nothing of this machine is touched."""
    script = tmp_path / "read_pair.py"
    script.write_text(READ_PAIR)
    made = f"ip link add {PAIR[0]} type veth peer name {PAIR[1]}"
    read = f"cat /sys/class/net/{PAIR[1]}/ifindex && exec {sys.executable} {script}"
    try:
        output = subprocess.run(
            ["unshare", "--map-root-user", "--net", "--mount", "sh", "-c",
             f"mount -t sysfs sysfs /sys; {made} || exit 77; {read}"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("no unshare here (util-linux)")
    if output.returncode in (1, 77) and "Traceback" not in output.stderr:
        pytest.skip(f"no virtual interfaces here: {output.stderr.strip()}")
    assert output.returncode == 0, output.stderr
    peer, answers = output.stdout.splitlines()
    first, again, other, _ = json.loads(answers)
    assert first == again == {"peer_ifindex": int(peer)}
    assert set(other) == {"peer_ifindex"}


def test_every_interface_of_this_machine_answers_or_has_none(statistics: Statistics) -> None:
    for interface in Path("/sys/class/net").iterdir():
        if (interface / "ifindex").exists():
            assert all(value >= 0 for value in statistics.read(interface.name).values())


@given(
    st.lists(st.text(st.characters(codec="ascii", categories=("L", "N")), max_size=31), max_size=9)
)
def test_names_are_what_comes_before_the_nul(names: list[str]) -> None:
    assert names_in(b"".join(name.encode().ljust(32, b"\0") for name in names)) == names

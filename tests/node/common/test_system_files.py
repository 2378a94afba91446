"""What small files of the system say, and what they may hold instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.evidence.codes.pci_addresses import pci_address
from oncall.node.common.system_files import read_counts, read_list, read_number, whole_number
from oncall.node.host.pci import PciPlace, nvidia_gpus, pci_place

SWITCH = "sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0"
SWITCHES = ("0000:15:01.0", "0000:16:00.0")


def _device(root: Path, place: str, numa_node: str = "-1", **files: str) -> None:
    folder = root / place
    folder.mkdir(parents=True)
    for name, text in {"numa_node": numa_node, **files}.items():
        (folder / name).write_text(f"{text}\n")
    links = root / "sys/bus/pci/devices"
    links.mkdir(parents=True, exist_ok=True)
    (links / folder.name).symlink_to(folder)


@pytest.mark.parametrize("text", ["", "x", "1.5", "0x10", "٣", "-", "1 2", "\0"])
def test_what_is_no_number_is_none(tmp_path: Path, text: str) -> None:
    assert whole_number(text) is None
    (tmp_path / "file").write_text(text)
    assert read_number(tmp_path / "file") is None


def test_files_that_are_gone_are_none(tmp_path: Path) -> None:
    assert read_number(tmp_path / "absent") is None
    assert read_number(tmp_path) is None
    assert read_number(Path("a\0b")) is None
    assert read_counts(tmp_path / "absent") == {}


def test_counts_by_name(tmp_path: Path) -> None:
    file = tmp_path / "meminfo"
    file.write_bytes(b"MemTotal:  16 kB\nnr_throttled 3\nmax\nodd: x\n\xff\xfe 4\n")
    assert read_counts(file) == {"MemTotal": 16, "nr_throttled": 3, "��": 4}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0-3,8,10-11", {0, 1, 2, 3, 8, 10, 11}),
        ("0", {0}),
        (None, set()),
        ("", set()),
        ("3-1", set()),
        ("0-99999999999", set()),
        ("0,x", set()),
    ],
)
def test_lists(text: str | None, numbers: set[int]) -> None:
    assert read_list(text) == numbers


def test_devices_below_one_switch_share_its_upstream_port(tmp_path: Path) -> None:
    _device(tmp_path, f"{SWITCH}/0000:17:00.0/0000:18:00.0", numa_node="0")
    _device(tmp_path, f"{SWITCH}/0000:17:01.0/0000:19:00.0", numa_node="1")
    assert pci_place(tmp_path, "0000:18:00.0") == PciPlace((*SWITCHES, "0000:17:00.0"), 0)
    assert pci_place(tmp_path, "0000:19:00.0") == PciPlace((*SWITCHES, "0000:17:01.0"), 1)
    assert pci_place(tmp_path, "0000:18:00.0").port == "0000:16:00.0"


def test_without_a_switch_it_is_the_root_port(tmp_path: Path) -> None:
    _device(tmp_path, "sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0")
    _device(tmp_path, "sys/devices/pci0000:00/0000:00:05.0")
    assert pci_place(tmp_path, "0000:3b:00.0") == PciPlace(("0000:3a:00.0",))
    assert pci_place(tmp_path, "0000:3b:00.0").port == "0000:3a:00.0"
    assert pci_place(tmp_path, "0000:00:05.0") == PciPlace()
    assert PciPlace().port is None
    assert pci_place(tmp_path, "0000:ff:00.0") == PciPlace()


@pytest.mark.parametrize(
    ("reported", "address"),
    [
        ("00000000:18:00.0", "0000:18:00.0"),
        ("0000:AB:00", "0000:ab:00.0"),
        ("18:1f.7", "0000:18:1f.7"),
        ("00010000:18:00.0", "10000:18:00.0"),
        ("GPU-1234", None),
        ("", None),
    ],
)
def test_addresses_are_spelt_as_sysfs_does(reported: str, address: str | None) -> None:
    assert pci_address(reported) == address


def test_gpus_are_seen_on_the_bus_without_a_driver(tmp_path: Path) -> None:
    place = "sys/devices/pci0000:00/0000:00"
    _device(tmp_path, f"{place}:01.0/0000:18:00.0", **{"class": "0x030200", "vendor": "0x10de"})
    _device(tmp_path, f"{place}:02.0/0000:19:00.0", **{"class": "0x020000", "vendor": "0x15b3"})
    assert nvidia_gpus(tmp_path) == ["0000:18:00.0"]
    assert nvidia_gpus(tmp_path / "nowhere") == []

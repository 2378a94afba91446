"""A node's sysfs as tests want it: RDMA devices like mlx5's and like rxe's, below a folder."""

from __future__ import annotations

import shutil
from pathlib import Path

# What a ConnectX-7 shows (drivers/infiniband/hw/mlx5/counters.c), and what oncall does not know.
COUNTERS = (
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
)
HW_COUNTERS = (
    "duplicate_request",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "rx_icrc_encapsulated",
)
RXE_COUNTERS = (
    "ack_deferred",
    "completer_retry_err",
    "duplicate_request",
    "link_downed",
    "out_of_seq_request",
    "rcvd_pkts",
    "rcvd_rnr_err",
    "rcvd_seq_err",
    "rdma_recvs",
    "rdma_sends",
    "retry_exceeded_err",
    "retry_rnr_exceeded_err",
    "send_err",
    "send_rnr_err",
    "sent_pkts",
)
NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


def write(path: Path, text: object) -> None:
    """A file of one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def ports(root: Path, name: str) -> Path:
    """Where the ports of an RDMA device are."""
    return root / "sys/class/infiniband" / name / "ports"


def counter(root: Path, name: str, value: object, device: str = "mlx5_0", port: int = 1) -> None:
    """Set a counter, named `counters/...` or `hw_counters/...`."""
    write(ports(root, device) / str(port) / name, value)


def mlx5(root: Path, number: int = 0) -> str:
    """A ConnectX-7 below a PCIe switch, with RoCE, up, all counters at 0; returns its name."""
    name, interface = f"mlx5_{number}", f"eth{number}"
    bus = f"{0x15 + number * 8:02x}"
    address = f"0000:{int(bus, 16) + 3:02x}:00.0"
    pci = root / f"sys/devices/pci0000:{bus}/0000:{bus}:01.0"
    pci = pci / f"0000:{int(bus, 16) + 1:02x}:00.0/0000:{int(bus, 16) + 2:02x}:00.0" / address
    for file, text in {
        "current_link_speed": "32.0 GT/s PCIe",
        "max_link_speed": "32.0 GT/s PCIe",
        "current_link_width": 16,
        "max_link_width": 16,
        "numa_node": number // 4,
        "aer_dev_correctable": "RxErr 0\nBadTLP 0\nBadDLLP 2\nTimeout 1\nTOTAL_ERR_COR 3",
    }.items():
        write(pci / file, text)
    (pci / "net" / interface).mkdir(parents=True)
    _link(root / "sys/bus/pci/devices" / address, pci)
    place = root / "sys/class/infiniband" / name
    _link(place / "device", pci)
    write(place / "hca_type", "MT4129")
    write(place / "fw_ver", "28.41.1000")
    _port(place / "ports/1", interface, f"0a4d:00{number + 1:02x}", "400 Gb/sec (4X NDR)")
    for file in COUNTERS:
        write(place / "ports/1/counters" / file, 0)
    for file in HW_COUNTERS:
        write(place / "ports/1/hw_counters" / file, 0)
    write(place / "ports/1/hw_counters/lifespan", 10)
    return name


def rxe(root: Path, number: int = 0) -> str:
    """A soft RoCE device as Linux 6.1 has it: no PCI device, no `counters/`."""
    name, interface = f"rxe{number}", f"veth{number}"
    place = root / "sys/class/infiniband" / name
    _port(place / "ports/1", interface, f"0a4d:00{number + 1:02x}", "10 Gb/sec (1X QDR)")
    write(place / "parent", interface)
    for file in RXE_COUNTERS:
        write(place / "ports/1/hw_counters" / file, 0)
    write(place / "ports/1/hw_counters/lifespan", 10)
    for file in ("tx_bytes", "rx_bytes"):
        write(root / "sys/class/net" / interface / "statistics" / file, 0)
    return name


def remove(root: Path, name: str) -> None:
    """The device goes, as its driver lets go of it."""
    shutil.rmtree(root / "sys/class/infiniband" / name)


def _port(port: Path, interface: str, ipv4: str, rate: str) -> None:
    write(port / "state", "4: ACTIVE")
    write(port / "phys_state", "5: LinkUp")
    write(port / "rate", rate)
    write(port / "link_layer", "Ethernet")
    gids = ["fe80:0000:0000:0000:0000:00ff:fe00:0001", f"0000:0000:0000:0000:0000:ffff:{ipv4}"]
    for index, gid in enumerate([*gids, NO_GID, NO_GID]):
        write(port / "gids" / str(index), gid)
        if gid != NO_GID:
            write(port / "gid_attrs/ndevs" / str(index), interface)


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)

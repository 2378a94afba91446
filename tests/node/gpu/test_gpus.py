"""GPUs by NVML: readings, places, Xids, and everything that a driver can refuse, lose or hold."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from oncall.node.common.own_thread import OwnThread
from oncall.node.common.source import Collected, Instant, read_clock
from oncall.node.gpu import gpu as contract
from oncall.node.gpu.gpu import Nvml, Status
from oncall.node.gpu.gpus import GpuSource
from oncall.node.store.batch import joined

from ..nvml_standin import NvmlStandin, StandinGpu

S = 10**9
NOW = Instant(1_800_000_000 * S, 5000 * S)
Until = Callable[[Callable[[], object]], None]


def later(seconds: float) -> Instant:
    return Instant(NOW.realtime_ns + int(seconds * S), NOW.monotonic_ns + int(seconds * S))


@pytest.fixture
def driver() -> Iterator[NvmlStandin]:
    driver = NvmlStandin(StandinGpu(0x18), StandinGpu(0x2A))
    yield driver
    driver.hang.set()


@pytest.fixture
def source(driver: NvmlStandin, tmp_path: Path) -> Iterator[GpuSource]:
    source = GpuSource(tmp_path, "gpu017", S, lambda: driver)
    yield source
    source.close()
    assert driver.begun == 0
    assert driver.event_sets == 0


def rows(collected: Collected, table: str = "gpus") -> list[dict[str, Any]]:
    return [
        {name: values[place] for name, values in batch.columns.items()}
        for batch in collected.batches
        if batch.table == table
        for place in range(batch.rows)
    ]


def test_the_standin_has_the_functions_of_pynvml() -> None:
    for name in (name for name in vars(Nvml) if name.startswith("nvml")):
        real = list(inspect.signature(getattr(pynvml, name)).parameters)
        standin = list(inspect.signature(getattr(NvmlStandin(), name)).parameters)
        # pynvml wraps a few, whose parameters do not show.
        assert real in (standin, ["args", "kwargs"]), name


def test_numbers_are_those_of_nvml() -> None:
    for status in Status:
        assert getattr(pynvml, f"NVML_ERROR_{status.name}") == status
    assert contract.SM_CLOCK == pynvml.NVML_CLOCK_SM
    assert contract.CORE_SENSOR == pynvml.NVML_TEMPERATURE_GPU
    assert contract.CORRECTED == pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
    assert contract.UNCORRECTED == pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    assert contract.VOLATILE == pynvml.NVML_VOLATILE_ECC
    assert pynvml.nvmlEventTypeXidCriticalError == contract.XID_EVENTS
    assert contract.MOST_NVLINKS >= pynvml.NVML_NVLINK_MAX_LINKS


def test_a_reading(source: GpuSource) -> None:
    first, second = rows(source.collect(NOW))
    assert first == {
        "node": "gpu017",
        "gpu": 0,
        "at_ns": NOW.realtime_ns,
        "sm_clock_mhz": 1755,
        "sm_clock_max_mhz": 1980,
        "throttle_reasons": 4,
        "power_w": 612.0,
        "power_limit_w": 700.0,
        "temp_c": 61,
        "utilisation": 0.97,
        "memory_used_bytes": 70 * 2**30,
        "memory_bytes": 80 * 2**30,
        "pcie_gen": 5,
        "pcie_gen_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "pcie_replays": 0,
        "ecc_corrected": 2,
        "ecc_uncorrected": 0,
        "remapped_rows": 1,
        "remap_failed": False,
        "processes": 1,
        "nvlinks": 18,
        "nvlinks_up": 18,
        "nvlink_errors": 0,
        "xid": None,
    }
    assert second["gpu"] == 1


def test_places_are_reported_when_found_and_at_every_seal(
    source: GpuSource, tmp_path: Path
) -> None:
    device = tmp_path / "sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices/0000:18:00.0").symlink_to(device)
    first, second = rows(source.collect(NOW), "devices")
    assert first == {
        "node": "gpu017",
        "kind": "gpu",
        "device": "0",
        "at_ns": NOW.realtime_ns,
        "pci_bus": "0000:18:00.0",
        "pcie_port": "0000:15:01.0",
        "pcie_path": ("0000:15:01.0",),
        "numa_node": 1,
        "model": "NVIDIA H100 80GB HBM3",
        "firmware": "570.158.01",
        "serial": "1650900000024",
    }
    assert (second["pci_bus"], second["pcie_port"], second["numa_node"]) == (
        "0000:2a:00.0",
        None,
        None,
    )
    assert rows(source.collect(later(1)), "devices") == []
    (again,) = source.current_state(later(2))
    assert again.rows == 2


def test_what_a_model_does_not_tell_is_null_said_and_not_asked_again(
    source: GpuSource, driver: NvmlStandin
) -> None:
    gpu = driver.gpus[0]
    gpu.links = []
    gpu.failing = {"RemappedRows": Status.NOT_SUPPORTED, "TotalEccErrors": Status.NO_PERMISSION}
    collected = source.collect(NOW)
    reported = rows(collected)[0]
    for name in ("nvlinks", "nvlink_errors", "remapped_rows", "remap_failed", "ecc_corrected"):
        assert reported[name] is None
    assert reported["power_w"] == 612.0
    assert collected.problems == ()
    (note,) = collected.notes
    assert note.startswith(
        "1 × NVIDIA H100 80GB HBM3: not reported: ecc_corrected, ecc_uncorrected"
    )
    gpu.failing = {}
    assert rows(source.collect(later(1)))[0]["remapped_rows"] is None


def test_a_call_that_fails_once_is_said_and_tried_again(
    source: GpuSource, driver: NvmlStandin
) -> None:
    driver.gpus[1].failing = {"Temperature": Status.TIMEOUT}
    collected = source.collect(NOW)
    assert rows(collected)[1]["temp_c"] is None
    assert collected.problems == ("GPU 1 (0000:2a:00.0): temp_c: Timeout",)
    driver.gpus[1].failing = {}
    collected = source.collect(later(1))
    assert rows(collected)[1]["temp_c"] == 61
    assert collected.problems == ()


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (Status.GPU_IS_LOST, "gpu_lost", "GPU is lost"),
        (Status.RESET_REQUIRED, "gpu_reset_required", "GPU requires restart"),
    ],
)
def test_a_gpu_that_falls_off_the_bus(
    source: GpuSource, driver: NvmlStandin, status: int, code: str, words: str
) -> None:
    source.collect(NOW)
    driver.gpus[0].failing = {"everything": status}
    collected = source.collect(later(1))
    lost, other = rows(collected)
    assert {name for name, value in lost.items() if value is not None} == {"node", "gpu", "at_ns"}
    assert other["power_w"] == 612.0
    assert collected.problems == (f"GPU 0 (0000:18:00.0): {words}",)
    (event,) = rows(collected, "host_events")
    assert (event["source"], event["code"], event["device"]) == ("nvml", code, "0000:18:00.0")
    collected = source.collect(later(2))
    assert rows(collected, "host_events") == []  # reported once
    assert collected.problems != ()  # and wrong as long as it is
    driver.gpus[0].failing = {}
    collected = source.collect(later(3))
    assert (rows(collected)[0]["power_w"], collected.problems) == (612.0, ())


def test_xids_come_by_themselves(source: GpuSource, driver: NvmlStandin, until: Until) -> None:
    source.collect(NOW)
    driver.report_xid(driver.gpus[1], 79)
    driver.gpus[1].failing = {"everything": Status.GPU_IS_LOST}
    events: list[dict[str, Any]] = []

    def reported() -> bool:
        events.extend(rows(source.collect(later(1)), "host_events"))
        return any(event["code"].startswith("xid") for event in events)

    until(reported)
    assert {event["code"] for event in events} == {"xid_79", "gpu_lost"}


def test_an_xid_is_reported_with_its_gpu(
    source: GpuSource, driver: NvmlStandin, until: Until
) -> None:
    source.collect(NOW)
    for _ in range(50):
        driver.report_xid(driver.gpus[1], 31)
    driver.report_xid(driver.gpus[0], 63)
    until(driver.events.empty)
    events: list[dict[str, Any]] = []
    last: list[Collected] = []

    def reported() -> bool:
        last.append(source.collect(later(1)))
        events.extend(rows(last[-1], "host_events"))
        return any(event["code"] == "xid_63" for event in events)

    until(reported)
    codes = [(event["code"], event["device"]) for event in events]
    assert codes == [("xid_31", "0000:2a:00.0")] * 10 + [("xid_63", "0000:18:00.0")]
    assert last[-1].dropped == 40  # a flood is cut, and counted
    assert [row["xid"] for row in rows(last[-1])] == [63, 31]


@pytest.mark.parametrize("function", ["EventSetCreate", "RegisterEvents"])
def test_without_xid_events_the_rest_is_reported(
    source: GpuSource, driver: NvmlStandin, function: str
) -> None:
    driver.failing = {function: Status.NOT_SUPPORTED}
    collected = source.collect(NOW)
    assert len(rows(collected)) == 2
    assert "Xid events" in collected.notes[-1]


def test_no_driver_is_no_fault(driver: NvmlStandin, tmp_path: Path) -> None:
    driver.failing = {"Init": Status.LIBRARY_NOT_FOUND}
    source = GpuSource(tmp_path, "gpu017", S, lambda: driver)
    collected = source.collect(NOW)
    assert collected.notes == ("no GPUs: NVML Shared Library Not Found",)
    assert (list(collected.batches), collected.problems) == ([], ())
    driver.failing = {}
    assert source.collect(later(30)).notes == collected.notes  # not tried at every reading
    assert len(rows(source.collect(later(61)))) == 2  # loaded since
    source.close()


def test_gpus_without_a_driver_are_a_problem(driver: NvmlStandin, tmp_path: Path) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:18:00.0"
    device.mkdir(parents=True)
    (device / "class").write_text("0x030200\n")
    (device / "vendor").write_text("0x10de\n")
    driver.failing = {"Init": Status.DRIVER_NOT_LOADED}
    (problem,) = GpuSource(tmp_path, "gpu017", S, lambda: driver).collect(NOW).problems
    assert "1 NVIDIA GPUs on the PCI bus (0000:18:00.0) and no NVML" in problem


def test_a_driver_that_does_not_fit_is_a_problem(driver: NvmlStandin, tmp_path: Path) -> None:
    driver.failing = {"Init": 18}  # library and kernel module of different versions
    collected = GpuSource(tmp_path, "gpu017", S, lambda: driver).collect(NOW)
    assert collected.problems == ("no GPUs: NVML: status 18",)


def test_without_the_binding_it_says_so(tmp_path: Path) -> None:
    def load() -> Nvml:
        raise ImportError

    collected = GpuSource(tmp_path, "gpu017", S, load).collect(NOW)
    assert "nvidia-ml-py" in collected.notes[0]


def test_a_gpu_that_cannot_be_opened_leaves_the_others(
    source: GpuSource, driver: NvmlStandin
) -> None:
    driver.gpus[0].failing = {"HandleByIndex": Status.GPU_IS_LOST}
    collected = source.collect(NOW)
    assert [row["gpu"] for row in rows(collected)] == [1]
    assert collected.problems == ("GPU 0 cannot be opened: GPU is lost",)


def test_a_driver_that_is_unloaded_and_comes_back(source: GpuSource, driver: NvmlStandin) -> None:
    source.collect(NOW)
    driver.failing = {"everything": Status.UNINITIALIZED}
    assert source.collect(later(1)).problems == ("GPUs can no longer be read: NVML: Uninitialized",)
    driver.failing, driver.begun = {}, 0
    assert len(rows(source.collect(later(61)))) == 2


def test_garbage_does_not_reach_a_store(source: GpuSource, driver: NvmlStandin) -> None:
    gpu = driver.gpus[0]
    gpu.memory_used = gpu.throttle_reasons = 2**64 - 1
    gpu.sm_clock_mhz = gpu.pcie_replays = 2**32 - 1
    collected = source.collect(NOW)
    reported = rows(collected)[0]
    assert (reported["memory_used_bytes"], reported["sm_clock_mhz"]) == (None, None)
    assert (reported["throttle_reasons"], reported["pcie_replays"]) == (2**64 - 1, 2**32 - 1)
    joined([*collected.batches, *source.collect(later(1)).batches])


def test_a_driver_that_hangs_holds_up_nobody_else(driver: NvmlStandin, tmp_path: Path) -> None:
    source = OwnThread(GpuSource(tmp_path, "gpu017", S, lambda: driver))
    driver.hang.clear()
    began = read_clock()
    source.collect(began)
    deadline = time.monotonic() + 30
    problems: tuple[str, ...] = ()
    while not problems and time.monotonic() < deadline:
        ahead = read_clock().monotonic_ns + 60 * S  # as if it had hung for a minute
        problems = source.collect(Instant(began.realtime_ns, ahead)).problems
        time.sleep(0.01)
    assert "does not answer" in problems[0]
    driver.hang.set()
    assert source.wait_for_a_reading(30)
    assert len(rows(source.collect(read_clock()))) == 2
    source.close()

"""Which kinds of device can have brought an error about, by what it says."""

from __future__ import annotations

import pytest

from oncall.analysis.faults.log_causes import devices_behind
from oncall.evidence.codes.event_catalogue import MEANINGS

PARTS = {part for part, _, _ in MEANINGS.values()}


def behind(reason: str, text: str, cause: str = "error") -> set[str]:
    return set(devices_behind({"cause": cause, "reason": reason, "text": text}))


@pytest.mark.parametrize(
    ("reason", "text", "devices"),
    [
        ("IndexError", "list index out of range", set()),
        ("KeyError", "'tokens'", set()),
        ("RuntimeError", "CUDA error: an illegal memory access was encountered", {"gpu", "nvlink"}),
        ("RuntimeError", "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", {"gpu"}),
        ("ConnectionResetError", "[Errno 104] Connection reset by peer", {"nic"}),
        ("OSError", "[Errno 5] Input/output error", {"storage"}),
        ("crash", "Segmentation fault (core dumped)", {"gpu", "memory", "cpu", "process"}),
        ("RuntimeError", "DataLoaderWorker (pid 7) is killed by signal: Killed.", {"process"}),
    ],
)
def test_an_error_is_of_the_devices_that_its_words_fit(
    reason: str, text: str, devices: set[str]
) -> None:
    assert behind(reason, text) >= devices
    assert bool(behind(reason, text)) is bool(devices)


@pytest.mark.parametrize("reason", ["echo", "warning", "exit"])
def test_what_only_shows_that_another_process_ended_may_be_of_any_device(reason: str) -> None:
    assert behind(reason, "KeyError: 'x'") == PARTS


@pytest.mark.parametrize(
    ("cause", "devices"),
    [("oom_gpu", set()), ("mismatch", set()), ("link_down", {"nic"}), ("terminated", PARTS)],
)
def test_other_causes_go_by_their_kind(cause: str, devices: set[str]) -> None:
    assert behind("", "", cause) == devices

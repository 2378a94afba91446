"""What faults have cost: by cause, never less than before, whatever looks come when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncall.views.lost_gpu_time import Losing, Lost, Price, phrase

S = 10**9
T0 = 1_774_062_131 * S  # 03:02:11 UTC


def test_in_words() -> None:
    stopped = Losing("F1", "hang.H1", "rank 37 on gpu005", 64, 64.0, T0)
    said = "64 GPUs wait for rank 37 on gpu005: 1.2 GPU-hours lost since 03:02:11 UTC"
    assert phrase(stopped, T0 + 68 * S) == said
    paid = phrase(stopped, T0 + 3600 * S, Price(2.5, "EUR"))
    assert "64.0 GPU-hours lost (160 EUR) since" in paid
    slow = Losing("F1", "slow.S1", "rank 3", 64, 6.4, T0)
    assert phrase(slow, T0 + 10 * S) == (
        "6.4 of 64 GPUs wait for rank 3: 64 GPU-seconds lost since 03:02:11 UTC"
    )
    assert phrase(slow, T0 - S).startswith("6.4 of 64 GPUs wait for rank 3: 0 GPU-seconds")


@given(st.lists(st.tuples(st.integers(-60, 60), st.booleans(), st.integers(0, 300))))
def test_it_is_counted_once(looks: list[tuple[int, bool, int]]) -> None:
    """Looks that come late or show an earlier begin than the last add what was not counted."""
    lost, now_s, first_s, sums = Lost(), 0, None, [0.0]
    for after_s, stopped, since_s in looks:
        now_s = max(0, now_s + after_s)
        begun_s = min(since_s, now_s)
        if stopped:
            first_s = begun_s if first_s is None else first_s
        found = [Losing("F1", "hang.H1", "", 8, 8.0, T0 + begun_s * S)] if stopped else []
        lost = lost.then(found, T0 + now_s * S)
        sums.append(sum(lost.seconds.values()))
    assert sums == sorted(sums)
    latest_s = max([now_s for now_s in _instants(looks)], default=0)
    assert sums[-1] <= 8 * (latest_s - (first_s or 0)) + 1e-6


def _instants(looks: list[tuple[int, bool, int]]) -> list[int]:
    now_s, instants = 0, []
    for after_s, _, _ in looks:
        now_s = max(0, now_s + after_s)
        instants.append(now_s)
    return instants

"""The host's programs: what keeps a GPU waiting for its next kernel."""

from __future__ import annotations

from oncall.simulate.measured import quantities as q
from oncall.simulate.measured.case import Case


def garbage_collection(case: Case) -> None:
    """GC: Python stops a rank every now and then to collect garbage; its GPU has nothing to do.

    Ways: `regular`: about every so many steps; `growing`: each takes longer than the last.
    """
    case.blame_device("rank")
    length_ns = case.about(0.25e9, 0.6e9, 1.5e9)
    for count, at in enumerate(case.moments(case.pick(6.0, 5.0, 4.0), spread=0.1)):
        longer = 1 + 0.03 * count if case.fault.how == "growing" else 1.0
        end = at + length_ns * longer * float(case.rng.uniform(0.85, 1.15))
        case.change(q.HOST_SPEED, 0.0, begin_ns=at, end_ns=end)

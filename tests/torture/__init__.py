"""What oncall survives: kills, full disks, stepped clocks, rival collectors, dead nodes.

    python -m tests.torture            everything, with a short budget (`make torture`)
    python -m tests.torture kills --kills 1000

Every scenario starts the real programs on real files and returns an `Outcome`; the run prints a
table of them and fails if anything was lost, doubled or not accounted for.
"""

from __future__ import annotations

import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
for folder in (REPOSITORY / "fixtures", REPOSITORY / "tests" / "fleet" / "ssh"):
    if str(folder) not in sys.path:  # ring_writer and loopback are shared with other tests
        sys.path.insert(0, str(folder))

"""How often oncall is right: simulated incidents over fresh seeds, and recordings with known truth.

    python benchmarks/accuracy.py simulated [--seeds 40] [--first 10000] [--jobs 2]
    python benchmarks/accuracy.py hooks [--seeds 24] [--first 40000] [--jobs 2]
    python benchmarks/accuracy.py measured [--seeds 12] [--healthy 24] [--kinds NIC,CABLE]
    python benchmarks/accuracy.py recordings FOLDER [--torch-python PYTHON]

Each is a file of its own, accuracy_<name>.py, which says what it counts: `simulated` what a patched
NCCL records, `hooks` what our hooks see of stock NCCL, `measured` what NICs, GPUs and hosts tell.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("simulated", "hooks", "measured", "recordings"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--seeds", type=int, default=40, help="fresh seeds a class")
    parser.add_argument("--first", type=int, default=10_000, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--healthy", type=int, default=24, help="measured: healthy jobs")
    parser.add_argument("--kinds", default="", help="measured: these faults only, by comma")
    parser.add_argument("--torch-python", help="a Python that has torch, for torchfrtrace")
    parser.add_argument("--verbose", action="store_true", help="show what was not right")
    options = parser.parse_args()
    arguments = options.seeds, options.first, options.jobs
    if options.what == "simulated":
        from accuracy_simulated import simulated

        simulated(*arguments, options.verbose)
    elif options.what == "hooks":
        from accuracy_hooks import hooks

        hooks(*arguments)
    elif options.what == "measured":
        from accuracy_measured import measured

        kinds = [kind for kind in options.kinds.split(",") if kind]
        measured(*arguments, options.healthy, kinds, options.verbose)
    elif options.folder is None:
        parser.error("recordings needs the folder they lie in")
    else:
        from accuracy_recordings import recordings

        recordings(options.folder, options.torch_python)


if __name__ == "__main__":
    main()

"""Answers of NCCL RAS from the judge's simulated jobs, hung, slow and fault-free.

    python benchmarks/make_ras_looks.py ../shared/judge OUT [--seed 0]
    python benchmarks/accuracy_jobs.py score OUT --recording ras1|ras2 [--symptom 1]

The judge writes RAS of hung jobs only. Here every job is asked: `ras1` is one look, `ras2` two, the
earlier one 10 s before in a hung job and up to 3 s before in a running one. The ranks of a running
job answer within 1, 5 or 20 ms of one another.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

HUNG_APART_S, RUNNING_APART_S, LEAST_APART_S = 10.0, 3.0, 1.0
SPREADS_S = (0.001, 0.005, 0.02)
PART_OF_RUN = 0.4  # jobs are seconds old: the earlier look must not be before they began


def make(judge: Path, out: Path, seed: int) -> None:
    """Write ras1, ras2 and truth.json of every case of the judge's set of this seed."""
    sys.path.insert(0, str(judge))
    generate, outputs, suite = (
        importlib.import_module(name) for name in ("generate", "outputs", "suite")
    )
    kinds: list[str] = []

    def looks(
        played: Any, folder: str, clock: Any, _: Any, until: list[float], lost: dict[int, float]
    ) -> None:
        """In place of the judge's Megatrace logs, of which `lost` names processes that are gone."""
        case, hung = Path(folder).parent, kinds[-1].startswith("hang")
        rng = np.random.default_rng([played.job.seed, seed])
        gone = dict.fromkeys(lost, "dead")
        at_s = float(np.median(until))
        spread = float(rng.choice(SPREADS_S))
        now = until if hung else [at_s + float(x) for x in rng.uniform(0, spread, len(until))]
        running = min(RUNNING_APART_S, max(LEAST_APART_S, PART_OF_RUN * at_s))
        apart = HUNG_APART_S if hung else running
        for name, moments in (
            ("ras1/now", now),
            ("ras2/earlier", [moment - apart for moment in now]),
            ("ras2/now", now),
        ):
            path = (case / name).with_suffix(".json")
            outputs.write_ras(played, str(path.parent), clock, moments, gone)
            (path.parent / "ras.json").rename(path)

    generate.write_megatrace = looks
    for number, (kind, ranks, case_seed, _) in enumerate(suite.plan("small", seed)):
        kinds.append(kind)
        case = f"{number:03d}-{kind}-{ranks}"
        generate.make_case(str(out / case), kind, case_seed, ranks, "megatrace")
        print(case, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("judge", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    make(asked.judge, asked.out, asked.seed)


if __name__ == "__main__":
    main()

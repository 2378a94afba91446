"""One rank that computes with every collective and prints a digest of all that it got.

computing_rank.py LIBRARY ID_FILE                      (RANK and WORLD_SIZE by environment)

The numbers are any floats, so that another order of the sums would show in their last bits.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

from numerics_rank import FLOAT32, RANK, SUM, WORLD, Nccl, join

_STEPS = 40
_COUNT = 20_000


def main() -> None:
    comm = join(Nccl(sys.argv[1]), Path(sys.argv[2]))
    digest = hashlib.sha256()
    weights = np.random.default_rng(RANK).standard_normal(_COUNT).astype(np.float32)
    for step in range(_STEPS):
        total = np.empty_like(weights)
        comm.call("AllReduce", weights, total, _COUNT, FLOAT32, SUM)
        gathered = np.empty(_COUNT * WORLD, np.float32)
        comm.call("AllGather", weights, gathered, _COUNT, FLOAT32)
        part = np.empty(_COUNT // WORLD, np.float32)
        comm.call("ReduceScatter", gathered, part, _COUNT // WORLD, FLOAT32, SUM)
        comm.wait()
        for result in (total, gathered, part):
            digest.update(result.tobytes())
        weights = np.tanh(total / WORLD + np.float32(step) * weights).astype(np.float32)
    comm.destroy()
    print(digest.hexdigest())


if __name__ == "__main__":
    main()

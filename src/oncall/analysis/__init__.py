"""The papers' algorithms as relations, one idea a file; importing this registers them all."""

from oncall.analysis import (  # noqa: F401  (imported for what they register, in this order)
    operations,
    peers,
    progress,
    waits,
    roots,
    hang,
    rounds,
    own_time,
)

"""What the guest runs and the tests outside expect: one place for both."""

RANKS = 4
ROUNDS = 3
# Values of four bytes that each call passes: all of them, or a rank's part.
MIX = {"all_reduce": 131072, "reduce_scatter": 32768, "all_gather": 32768, "neighbours": 65536}

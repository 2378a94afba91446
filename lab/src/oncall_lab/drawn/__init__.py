"""Random scenarios of each kind, drawn from a seed: for benchmarks, and laws over many of them."""

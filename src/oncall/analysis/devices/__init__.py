"""NICs, GPUs, hosts and their events: what each device did, and what is wrong with it."""

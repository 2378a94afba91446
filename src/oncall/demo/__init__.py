"""A small training job on this machine, watched as a cluster is, with a fault to find in it."""

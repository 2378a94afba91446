"""RDMA NICs: devices, counters, queue pairs."""

"""Probes between nodes: UDP and RDMA pings, and who pings whom."""

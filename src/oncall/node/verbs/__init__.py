"""Work requests that training processes post to their RDMA NICs."""

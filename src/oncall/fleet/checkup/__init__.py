"""What a check of nodes, of this machine and of a running job finds, and what to type next."""

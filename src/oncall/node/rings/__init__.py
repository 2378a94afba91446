"""Training processes' rings: NCCL calls and transfers that the hooks recorded."""

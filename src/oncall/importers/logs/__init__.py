"""Job logs as text: what PyTorch, NCCL, launchers, schedulers and frameworks print."""

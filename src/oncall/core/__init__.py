"""What every layer shares: errors, units, node sets, the training configuration, memory in hand."""

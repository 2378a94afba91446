"""From calls to tasks: forward and backward passes of micro-batches, iteration by iteration."""

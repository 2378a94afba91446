"""The training processes of a node while they run: which they are, their settings, their stacks."""

"""oncall: which rank, node, link or stage holds up a training job, and why."""

__version__ = "0.1.0"

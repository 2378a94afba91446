"""oncall: which rank, node, link or stage holds up a training job, and why."""

__version__ = "0.2.0"

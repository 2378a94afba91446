"""The console: a terminal that shows snapshots and asks sessions."""

"""The collector: the process that asks the sources, commits their rows and seals shards."""

"""The host: processors, memory, processes, kernel log."""

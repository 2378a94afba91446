"""The command line: one module per command, imported on demand."""

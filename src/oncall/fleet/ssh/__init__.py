"""The two ways over SSH: our own client in this process, and the `ssh` program."""

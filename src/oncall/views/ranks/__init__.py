"""The ranks of a job: what each does, one of them in full, and the communicators they are in."""

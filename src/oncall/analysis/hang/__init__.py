"""Who waits for whom across communicators, and where the wait begins."""

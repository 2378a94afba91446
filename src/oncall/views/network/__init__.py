"""A collective in the network: who waited for whom, and where that began."""

"""Gathering by a tree: which nodes are behind which gateways, and what runs on a gateway."""

"""The papers' algorithms as relations, one idea a file; oncall.evidence.registry finds them."""

"""Evidence on a node: the live store, sealed shards, and what is answered from them."""

"""VenusTrace's view: the trace graph of an iteration, its critical path, slow stages."""

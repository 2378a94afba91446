"""A small training job on this machine, recorded like one on a cluster, with an injected fault."""

"""The collector: what runs on a node, one file a source of evidence."""

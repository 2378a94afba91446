"""What surrounds every screen: what it is told and may ask, keys, prompts, the time cursor."""

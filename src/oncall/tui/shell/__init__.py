"""What surrounds every screen: its state and questions, keys, prompts, the time cursor."""

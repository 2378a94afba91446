"""Many nodes: who they are, how they are reached, what they are asked."""

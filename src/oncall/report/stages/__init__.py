"""Pictures of training iterations: what each pipeline stage did when, and the critical path."""

"""What the members of a communicator transmitted in an operation."""

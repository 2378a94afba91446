"""What processes do, as their stacks show, and which of them do something else than the others."""

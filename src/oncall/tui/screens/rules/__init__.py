"""The rulebooks, and an editor that tries a change before it is saved."""

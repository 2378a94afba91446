"""Lines of text for a terminal."""

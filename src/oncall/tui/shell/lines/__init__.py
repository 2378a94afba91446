"""The lines around every screen, and what a new snapshot adds to the log: words and widgets."""

"""The console: a terminal that shows worlds and asks sessions."""

"""Writing rulebooks: checks, tests, outlines and a starter."""

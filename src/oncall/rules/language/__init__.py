"""The rule language: a rulebook as written, loaded and checked for shape."""

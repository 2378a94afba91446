"""Rulebooks: facts in SQL, a tree of questions, and the story told of the answers."""

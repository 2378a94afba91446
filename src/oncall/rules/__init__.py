"""Rulebooks: facts in SQL, a tree of questions, and the story written from the answers."""

"""The screens: a folder each, with its models and widgets, and a line in shell/registry.py."""

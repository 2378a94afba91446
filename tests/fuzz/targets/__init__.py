"""One file a family of targets; `registry.targets` imports them all."""

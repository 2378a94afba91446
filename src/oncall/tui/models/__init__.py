"""View models: what a screen shows, as pure functions of the world."""

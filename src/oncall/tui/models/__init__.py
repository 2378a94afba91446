"""View models that several screens or widgets use: pure functions of what a session answers."""

"""CCL-D's rounds: who arrived when, how long each took, how much of it was a rank's own time."""

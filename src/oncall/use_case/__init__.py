"""From evidence to verdict: what a diagnosis is made of, and what is said where there is none."""

"""What switches and NICs report: tables, simulations, and counters as text."""

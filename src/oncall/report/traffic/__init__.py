"""What ranks transmit in microseconds, to look at: rate curves of an operation, and who sends to
whom, as text for a terminal and as SVG (Pulse Fig. 6 to 9)."""

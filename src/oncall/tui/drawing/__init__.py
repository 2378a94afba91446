"""How text, states and themes are drawn, on whatever screen."""

"""Views and diagnoses as text, SVG, Markdown and JSON."""

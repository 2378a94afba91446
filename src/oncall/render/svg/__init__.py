"""Pictures for a browser."""

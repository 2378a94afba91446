"""What every source shares: its interface, its configuration, its rate limits."""

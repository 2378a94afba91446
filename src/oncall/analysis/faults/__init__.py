"""What logs say together: the root cause of each attempt, its consequences, the network's setup."""

"""Traffic of queue pairs in microsecond epochs, and the operations found in it."""

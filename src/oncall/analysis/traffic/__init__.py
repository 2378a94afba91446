"""Pulse's view: operations, peers and volume from what each queue pair sent."""

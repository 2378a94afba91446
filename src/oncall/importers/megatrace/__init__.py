"""Megatrace logs: one line a call, by a patched NCCL."""

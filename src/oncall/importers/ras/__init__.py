"""NCCL's RAS subsystem: its text and JSON reports, saved or asked for."""

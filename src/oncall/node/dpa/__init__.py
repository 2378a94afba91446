"""Measurement on the NIC's own data-path accelerator."""

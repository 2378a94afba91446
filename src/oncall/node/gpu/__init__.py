"""GPUs, by NVML."""

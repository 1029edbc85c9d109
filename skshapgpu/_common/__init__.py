"""Devices, memory, progress and numbers: what all other rooms use."""

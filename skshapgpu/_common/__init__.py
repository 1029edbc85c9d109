"""Devices, memory, progress and numbers, for all other folders."""

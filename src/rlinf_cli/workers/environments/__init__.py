"""Environments in processes: how many instances of a simulator are stepped side by side."""

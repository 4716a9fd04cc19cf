"""Reinforcement-learning post-training with measured placement."""

__version__ = "0.1.0"

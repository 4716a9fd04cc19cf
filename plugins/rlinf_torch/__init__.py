"""Hooks of the built-in plugin."""

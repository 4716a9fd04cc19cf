"""Agents: episodes in which a policy speaks and calls tools, many at once in one event loop."""

"""Trackers that get the metrics of a run."""

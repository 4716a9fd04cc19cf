"""The configuration as a JSON Schema, for editors and other programs."""

from __future__ import annotations

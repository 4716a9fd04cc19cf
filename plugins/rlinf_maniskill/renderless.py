"""ManiSkill on machines that cannot render: without a Vulkan device, states alone."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any


@cache
def can_render() -> bool:
    """Whether the renderer finds a device here. Tried, not told from versions: old drivers are there and do not work."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it falls back to its own Vulkan loader
        import sapien.render

    try:
        sapien.render.RenderMaterial()
    except RuntimeError:
        return False
    return True


def without_materials() -> None:
    """Let tasks describe what their objects look like, although nothing will be drawn: the material's own class cannot be made
    without a device."""
    import sapien.pysapien
    import sapien.render

    sapien.render.RenderMaterial = sapien.pysapien.render.RenderMaterial = Undrawn


class Undrawn:
    """Takes what a material is told."""

    def __init__(self, *positional: Any, **properties: Any) -> None:
        self.base_color = [0.5, 0.5, 0.5, 1.0]
        self.__dict__.update(properties)

    def set_base_color(self, color: Any) -> None:
        self.base_color = color

    def __getattr__(self, name: str) -> Any:
        return (lambda *values: None) if name.startswith("set_") else None

"""Whether simulators can draw here: tried in processes of their own, since a driver that is broken may take one with it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator

from rlinf_cli.runs.installation import Finding

_PATIENCE_S = 60.0

_MUJOCO = """
import mujoco
context = mujoco.GLContext(16, 16)
context.make_current()
from OpenGL import GL
print("device:", GL.glGetString(GL.GL_RENDERER).decode(), flush=True)
context.free()
"""
_SAPIEN = """
import sapien.render
sapien.render.RenderMaterial()
print(sapien.render.get_device_summary(), flush=True)
"""


def rendering() -> Iterator[Finding]:
    """One finding for each library that draws and is installed."""
    if _is_there("mujoco"):
        kind = os.environ.get("MUJOCO_GL", "egl")
        yield _finding(
            "images, MuJoCo", _device(_MUJOCO, r"device: (.+)", MUJOCO_GL=kind),
            f"drawn by {{}}, MUJOCO_GL={kind}",
            f"environments of MuJoCo and LIBERO cannot be drawn, with MUJOCO_GL={kind}; they can be simulated",
            "install EGL (apt: libegl1, libgl1-mesa-dri), or set MUJOCO_GL=osmesa and install OSMesa (apt: libosmesa6)")
    if _is_there("sapien"):
        yield _finding(
            "images, ManiSkill", _device(_SAPIEN, r"GPU: (.+)"), "drawn by {}, through Vulkan",
            "ManiSkill finds no Vulkan device: its tasks can be simulated, and observed as states, but not drawn",
            "without a GPU install Mesa's lavapipe, version 25 or later (apt: mesa-vulkan-drivers, libvulkan1)")


def _finding(name: str, device: str, drawn: str, missing: str, fix: str) -> Finding:
    return Finding(name, "ok", drawn.format(device)) if device else Finding(name, "note", missing, fix)


def _device(program: str, pattern: str, **variables: str) -> str:
    """What the program says it draws with; empty where it cannot."""
    try:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False,
                              timeout=_PATIENCE_S, env={**os.environ, **variables})
    except subprocess.TimeoutExpired:
        return ""
    found = re.search(pattern, done.stdout)
    return found[1].strip() if found else ""


def _is_there(package: str) -> bool:
    return importlib.util.find_spec(package) is not None

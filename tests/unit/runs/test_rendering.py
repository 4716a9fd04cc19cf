"""What `rlinf doctor` tells of drawing: the device that is found, or what to do."""

import pytest

from rlinf_cli.runs import rendering as module
from rlinf_cli.runs.rendering import rendering

MUJOCO = """
import os
class GLContext:
    def __init__(self, width, height):
        if os.environ["MUJOCO_GL"] != "egl":
            os.abort()
    def make_current(self): ...
    def free(self): raise RuntimeError("too late to matter")
"""
OPENGL = """
class GL:
    GL_RENDERER = 1
    @staticmethod
    def glGetString(what): return b"llvmpipe (LLVM 15)"
"""
SAPIEN = """
def RenderMaterial():
    {made}
def get_device_summary(): return "GPU: NVIDIA H200 \\n  Supported: 1"
"""


@pytest.fixture
def libraries(site, monkeypatch):
    """Installs what draws: `sapien` as its renderer behaves."""
    def install(made):
        (site.folder / "mujoco.py").write_text(MUJOCO)
        (site.folder / "OpenGL.py").write_text(OPENGL)
        (site.folder / "sapien").mkdir()
        (site.folder / "sapien" / "__init__.py").write_text("")
        (site.folder / "sapien" / "render.py").write_text(SAPIEN.format(made=made))

    monkeypatch.setenv("PYTHONPATH", str(site.folder))
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(module, "_is_there", lambda package: (site.folder / package).exists()
                        or (site.folder / f"{package}.py").exists())
    return install


def test_devices_that_are_found_are_named(libraries):
    libraries("pass")
    mujoco, maniskill = rendering()
    assert (mujoco.state, mujoco.text) == ("ok", "drawn by llvmpipe (LLVM 15), MUJOCO_GL=egl")
    assert (maniskill.state, maniskill.text) == ("ok", "drawn by NVIDIA H200, through Vulkan")


def test_without_a_device_it_says_what_still_works_and_what_to_install(libraries, monkeypatch):
    libraries("raise RuntimeError('failed to find a rendering device')")
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    mujoco, maniskill = rendering()
    assert [one.state for one in (mujoco, maniskill)] == ["note", "note"]
    assert "cannot be drawn, with MUJOCO_GL=glfw" in mujoco.text
    assert "libegl1" in mujoco.fix
    assert "observed as states" in maniskill.text
    assert "mesa-vulkan-drivers" in maniskill.fix


def test_libraries_that_are_not_installed_are_not_told_of(libraries):
    assert list(rendering()) == []

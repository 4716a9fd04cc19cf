from __future__ import annotations

import importlib
import socket
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from rlinf_cli.plugins import loader

REGISTER = """
from rlinf_cli.api import Extension, hookimpl

@hookimpl
def register_rewards():
    return [{extensions}]
"""


class Site:
    """A folder on sys.path in which distributions are written as plain `.dist-info` folders: no pip."""

    def __init__(self, folder: Path):
        self.folder = folder

    def add(self, distribution, entry_points, version="1.0", **modules):
        """`entry_points`: name -> module, or the raw text of the file. `modules`: module name -> source."""
        if not isinstance(entry_points, str):
            entry_points = "[rlinf]\n" + "".join(f"{name} = {value}\n" for name, value in entry_points.items())
        self.metadata(distribution, f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n", version)
        (self._info(distribution, version) / "entry_points.txt").write_text(entry_points)
        for name, source in modules.items():
            (self.folder / f"{name}.py").write_text(dedent(source))
        importlib.invalidate_caches()

    def add_reward(self, distribution, plugin, *rewards, version="1.0", **settings):
        """A healthy plugin that registers rewards, whose extensions take `settings`."""
        module = f"hooks_of_{distribution.replace('-', '_')}"
        made = [f"Extension({name!r}, target='{module}:nothing', **{settings!r})" for name in rewards]
        self.add(distribution, {plugin: module}, version, **{module: REGISTER.format(extensions=", ".join(made))})

    def metadata(self, distribution, text, version="1.0"):
        """Write only the METADATA of a distribution."""
        self._info(distribution, version).mkdir(exist_ok=True)
        (self._info(distribution, version) / "METADATA").write_text(text)

    def _info(self, distribution, version):
        return self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"


@pytest.fixture(scope="session")
def run_two_ranks():
    """`run_two_ranks(script, job, out)`: `python SCRIPT RANK 2 PORT JOB OUT` side by side for ranks 0 and 1, to their end."""

    def run(script, job, out):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        ranks = [subprocess.Popen([sys.executable, script, str(rank), "2", str(port), job, out],
                                  stderr=subprocess.PIPE, text=True) for rank in range(2)]
        try:
            for rank in ranks:
                _, errors = rank.communicate(timeout=300)
                assert rank.returncode == 0, errors
        finally:
            for rank in ranks:
                rank.kill()

    return run


@pytest.fixture
def site(tmp_path, monkeypatch):
    """An empty `Site` at the head of sys.path; what was imported from it is forgotten afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    for variable in ("RLINF_PLUGINS", "RLINF_NO_PLUGINS", "RLINF_TRACE_PLUGINS", "RLINF_TRACEBACK"):
        monkeypatch.delenv(variable, raising=False)
    loader._loaded.cache_clear()
    yield Site(folder)
    loader._loaded.cache_clear()
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]

"""Scaffolded packages of every kind, built and unpacked as pip would, without pip."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from rlinf_cli.plugins.hookspecs import KINDS
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.plugins.scaffold import scaffold

BUILD = """
import os, sys, zipfile
from hatchling.build import build_wheel
site = sys.argv[1]
for package in sys.argv[2:]:
    os.chdir(package)
    wheel = build_wheel(site)
    zipfile.ZipFile(os.path.join(site, wheel)).extractall(site)
    os.remove(os.path.join(site, wheel))
"""


@dataclass(frozen=True)
class Packages:
    """`roots`: kind -> the package's directory; `site`: where all are installed."""

    roots: dict[str, Path]
    site: Path

    def python(self, *words, timeout=240):
        """Run `python WORDS` with them installed."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("RLINF_", "PYTEST_"))}
        environment |= {"PYTHONPATH": str(self.site), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        return subprocess.run([sys.executable, *map(str, words)], cwd=self.site, env=environment, text=True, timeout=timeout,
                              capture_output=True, check=False)


@pytest.fixture(scope="session")
def packages(tmp_path_factory):
    """One of each kind, named `my-KIND`."""
    folder, site = tmp_path_factory.mktemp("packages"), tmp_path_factory.mktemp("site-packages")
    plugins = load_plugins(third_party=False)
    roots = {kind: scaffold(f"my-{kind}", kind, folder, plugins) for kind in KINDS}
    done = subprocess.run([sys.executable, "-c", BUILD, site, *roots.values()], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return Packages(roots, site)


@pytest.fixture
def plugins():
    """Those of rlinf-cli."""
    return load_plugins(third_party=False)

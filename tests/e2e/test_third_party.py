"""A package of a third party, installed with pip into an environment of its own: `rlinf train` uses what it adds."""

import json
import os
import subprocess
import sys
import sysconfig
import venv

import pytest

from rlinf_cli.plugins.hookspecs import KINDS
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.plugins.scaffold import scaffold

pytestmark = pytest.mark.e2e

UNPACK = """
import os, sys, zipfile
from hatchling.build import build_wheel
for package in sys.argv[2:]:
    os.chdir(package)
    zipfile.ZipFile(os.path.join("dist", build_wheel("dist"))).extractall(sys.argv[1])
"""
REWARD_HOOK = '''

@hookimpl
def register_rewards() -> list[Extension]:
    return [Extension("nearly", target="rlinf_mine.nearly:Nearly", summary="partial credit for a digit that is near")]
'''
REWARD = '''
class Nearly:
    def __init__(self, config): pass

    def score(self, sample):
        said = sample.response.strip()
        near = 1 - abs(int(said) - int(sample.answer)) / 10 if said.isdecimal() and len(said) == 1 else 0.0
        return {"reward": near, "digit": float(said.isdecimal())}
'''


@pytest.fixture
def python(tmp_path):
    """The interpreter of a new environment that sees all of this one's packages, so that none is downloaded."""
    venv.create(tmp_path / "venv")
    here = sysconfig.get_path("purelib")
    (there,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    # addsitedir, since the packages of this environment may have such files themselves (rlinf-cli has, where it is editable)
    (there / "here.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    return tmp_path / "venv" / "bin" / "python"


def make_package(directory):
    """From a scaffold: the baseline is the median, with a metric of its own, and there is a reward too."""
    root = scaffold("mine", "algorithm", directory, load_plugins())
    source = root / "src" / "rlinf_mine"
    algorithm = (source / "algorithm.py").read_text()
    edited = algorithm.replace("rewards.mean()", "rewards.median()").replace("actor/baseline", "actor/median")
    assert edited.count("median") == 3
    (source / "algorithm.py").write_text(edited)
    (source / "nearly.py").write_text(REWARD)
    with (source / "__init__.py").open("a") as hooks:
        hooks.write(REWARD_HOOK)
    return root


def test_a_run_made_of_scaffolded_plugins_only(rlinf, tmp_path):
    """One of each kind, untouched; two ranks train where there are two devices."""
    plugins, site = load_plugins(), tmp_path / "site"
    roots = [scaffold(f"my-{kind}", kind, tmp_path, plugins) for kind in KINDS]
    subprocess.run([sys.executable, "-c", UNPACK, site, *roots], check=True)
    uses = {"--algo": "algorithm", "--engine": "engine", "--trainer": "trainer", "--reward": "reward", "--model": "model",
            "--data": "dataset"}
    rlinf("train", *(word for flag, kind in uses.items() for word in (flag, f"my-{kind}")), "workflow=my-workflow",
          "log.loggers=[my-logger]", "--steps", "3", "--name", "all", "--devices", "cpu:2", "reward.brevity=0", check=True,
          PYTHONPATH=str(site), RLINF_CACHE=str(tmp_path / "cache"), PYTHONDONTWRITEBYTECODE="1")
    rows = [json.loads(line) for line in (tmp_path / "runs/all/metrics.jsonl").read_text().splitlines()]
    assert [row["rollout/staleness/max"] for row in rows] == [0, 1, 0]
    assert all(row["rollout/logp_diff/max"] < 1e-5 for row in rows)
    assert all(row["reward/right/mean"] == row["reward/mean"] for row in rows)
    assert any(row["actor/grad_norm"] > 0 for row in rows)
    written = (tmp_path / "runs/all/metrics.csv").read_text().splitlines()
    assert f"3,reward/mean,{rows[-1]['reward/mean']:.6g}" in written


def test_a_package_of_a_third_party_trains(python, rlinf, tmp_path):
    package = make_package(tmp_path)
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-build-isolation", "--no-index",
               "--no-cache-dir", "--disable-pip-version-check", "--quiet", package]
    done = subprocess.run(install, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr

    def there(*words):
        ended = subprocess.run([python, "-m", "rlinf_cli", *words], cwd=tmp_path, text=True, capture_output=True, timeout=180,
                               env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended

    listed = {plugin["name"]: plugin for plugin in json.loads(there("plugins", "--json").stdout)}
    assert listed["mine"] == {
        "name": "mine", "version": "0.1.0", "distribution": "rlinf-mine", "state": "ok", "problem": "",
        "provides": [{"kind": "algorithm", "name": "mine"}, {"kind": "reward", "name": "nearly"}]}

    there("train", "--algo", "mine", "--reward", "nearly", "--name", "third", "--steps", "2")
    rows = [json.loads(line) for line in (tmp_path / "runs/third/metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    for row in rows:
        assert 0 <= row["actor/median"] <= 1
        assert row["actor/surprise"] > 0
        assert 0 <= row["reward/digit/mean"] <= 1
        assert 0 < row["reward/mean"] < 1
    assert "nearly" in (tmp_path / "runs/third/config.yaml").read_text()

    assert "mine" not in rlinf("plugins", check=True).stdout  # nothing of it is left in the environment that runs the tests

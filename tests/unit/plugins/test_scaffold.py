"""`scaffold` writes packages of every kind that work as they are."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlinf_cli.errors import UsageError
from rlinf_cli.plugins.hookspecs import KINDS
from rlinf_cli.plugins.scaffold import STARTS, Names, scaffold

RULES = "E,F,I,B,UP,SIM,RUF,PT,C4,PERF"


def test_every_kind_has_a_template():
    assert list(STARTS) == sorted(STARTS, key=list(KINDS).index)
    assert STARTS.keys() == KINDS.keys()


def test_all_kinds_pass_their_own_tests(packages):
    tests = [root / "tests" for root in packages.roots.values()]
    done = packages.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--rootdir",
                           tests[0].parents[1], *tests)
    assert done.returncode == 0, done.stdout
    passed = int(re.search(r"(\d+) passed", done.stdout).group(1))
    assert passed >= 3 * len(KINDS)
    assert "skipped" not in done.stdout
    assert "warning" not in done.stdout


def test_all_kinds_pass_the_check_untouched(packages):
    done = packages.python("-m", "rlinf_cli", "plugins", "check", "--json")
    findings = json.loads(done.stdout)
    assert (done.returncode, [one for one in findings if one["state"] != "ok"]) == (0, [])
    checked = {one["extension"] for one in findings if one["check"] == "contract"}
    assert checked == {f"{kind} my-{kind}" for kind in KINDS}
    with_config = {one["extension"].partition(" ")[0] for one in findings if one["check"] == "config"}
    assert with_config == KINDS.keys() - {"model", "workflow"}


def test_linters_have_nothing_to_say(packages):
    ruff = Path(sys.executable).parent / "ruff"
    for root in packages.roots.values():
        done = subprocess.run([ruff, "check", "--no-cache", "--output-format", "concise", "--target-version", "py310", "--select",
                               RULES, "--ignore", "B905,RUF001,RUF002,RUF003", "."], cwd=root, text=True, capture_output=True,
                              check=False)
        assert done.returncode == 0, done.stdout


def test_a_package_is_a_distribution_a_module_and_tests(packages):
    root = packages.roots["reward"]
    files = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file() and ".ruff" not in path.parts)
    assert files == [".gitignore", "README.md", "pyproject.toml", "src/rlinf_my_reward/__init__.py",
                     "src/rlinf_my_reward/config.py", "src/rlinf_my_reward/py.typed", "src/rlinf_my_reward/reward.py",
                     "tests/test_reward.py"]
    assert root.name == "rlinf-my-reward"
    project = (root / "pyproject.toml").read_text()
    assert 'name = "rlinf-my-reward"' in project
    assert '[project.entry-points.rlinf]\nmy-reward = "rlinf_my_reward"' in project
    assert "rlinf train --algo grpo --reward my-reward" in (root / "README.md").read_text()


def test_nothing_is_left_to_fill_in(packages):
    for root in packages.roots.values():
        for path in (path for path in root.rglob("*") if path.suffix in (".py", ".toml", ".md")):
            assert "${" not in path.read_text(), path


@pytest.mark.parametrize("kind", KINDS)
def test_a_plugin_uses_the_public_names_only(packages, kind):
    for path in packages.roots[kind].rglob("*.py"):
        for statement in ast.walk(ast.parse(path.read_text())):
            if isinstance(statement, ast.ImportFrom) and statement.module.startswith("rlinf_cli"):
                assert statement.module in ("rlinf_cli.api", "rlinf_cli.plugins.testing"), path


@pytest.mark.parametrize(("name", "distribution", "module", "class_name"), [
    ("dice", "rlinf-dice", "rlinf_dice", "Dice"),
    ("my-own-2", "rlinf-my-own-2", "rlinf_my_own_2", "MyOwn2"),
    ("GSPO2", "rlinf-gspo2", "rlinf_gspo2", "GSPO2"),
])
def test_names_follow_from_one(name, distribution, module, class_name):
    names = Names(name)
    assert (names.distribution, names.module, names.class_name) == (distribution, module, class_name)


@pytest.mark.parametrize("name", ["", "-", "a-", "-a", "a--b", "a_b", "a.b", "a b", "2a", "ä", "../a", "a/b", "$x", "a\n"])
def test_a_name_is_checked(name, plugins, tmp_path):
    with pytest.raises(UsageError, match="cannot be the name of a plugin: letters, digits and single '-'"):
        scaffold(name, "reward", tmp_path, plugins)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "kind", "told"), [
    ("grpo", "reward", r"there is a plugin 'grpo' of rlinf-cli .* already"),
    ("exact", "reward", "there is a reward 'exact' already"),
])
def test_a_name_that_is_taken_is_refused(name, kind, told, plugins, tmp_path):
    with pytest.raises(UsageError, match=told):
        scaffold(name, kind, tmp_path, plugins)


def test_a_name_is_free_for_another_kind(plugins, tmp_path):
    assert scaffold("exact", "dataset", tmp_path, plugins).is_dir()


def test_nothing_is_overwritten(plugins, tmp_path):
    (tmp_path / "rlinf-dice").mkdir()
    with pytest.raises(UsageError, match="rlinf-dice exists already: nothing is overwritten"):
        scaffold("dice", "reward", tmp_path, plugins)
    assert list((tmp_path / "rlinf-dice").iterdir()) == []


def test_a_directory_that_cannot_be_made_is_told(plugins, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="rlinf-dice cannot be made: Not a directory"):
        scaffold("dice", "reward", tmp_path / "file", plugins)


def test_directories_above_are_made(plugins, tmp_path):
    root = scaffold("dice", "model", tmp_path / "deep" / "down", plugins)
    assert root == tmp_path / "deep" / "down" / "rlinf-dice"
    assert (root / "src" / "rlinf_dice" / "model.py").is_file()

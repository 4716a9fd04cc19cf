"""What a command may import, and what `rlinf --help` may cost. A new command adds a row."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys

import pytest

HEAVY = {"numpy", "ray", "torch", "transformers"}
HELP_CPU_MS = 100
RUNS = 7

PROGRAM = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(m for m in sys.modules if "." not in m)), file=sys.stderr))
from rlinf_cli.commands import main
main(prog_name="rlinf")
"""

COMMANDS = [
    (["--help"], set()),
    (["--version"], set()),
    (["nonsense"], set()),
    (["plugins", "--help"], set()),
    (["plugins", "list"], set()),
    (["plugins", "list", "--json"], set()),
    (["plugins", "info", "grpo"], set()),
    (["plugins", "new", "--help"], set()),
    (["plugins", "check"], set()),
    (["config", "keys"], set()),
    (["config", "show", "steps=3"], set()),
    (["config", "schema"], set()),
    (["runs"], set()),
    (["runs", "show", "nowhere"], set()),
    (["runs", "compare", "nowhere"], set()),
    (["eval", "--help"], set()),
    (["generate", "--help"], set()),
    (["trace", "--help"], set()),
    (["profile", "--help"], set()),
    (["doctor"], set()),
]
"""Arguments of `rlinf`, and which of the heavy packages they may import."""

COMPLETIONS = ["rlinf ", "rlinf plugins ", "rlinf plugins info "]


def imported(args, **environment):
    """Top-level modules that the command has imported when it ends."""
    env = {**os.environ, **environment}
    ended = subprocess.run([sys.executable, "-c", PROGRAM, *args], env=env, capture_output=True, text=True, check=False)
    return set(json.loads(ended.stderr.splitlines()[-1]))


def cpu_ms(args):
    """CPU time of one Python process, user and system."""
    child = subprocess.Popen([sys.executable, *args], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return (usage.ru_utime + usage.ru_stime) * 1000


@pytest.mark.parametrize(("args", "allowed"), COMMANDS, ids=lambda value: " ".join(value) or "nothing")
def test_a_command_imports_no_heavy_package(args, allowed):
    assert imported(args) & HEAVY <= allowed


@pytest.mark.parametrize("words", COMPLETIONS)
def test_completion_imports_no_heavy_package(words):
    position = str(len(words.split()))
    modules = imported([], _RLINF_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=position)
    assert "click" in modules
    assert not modules & HEAVY


def test_the_help_imports_neither_the_plugin_layer_nor_the_tables():
    assert not imported(["--help"]) & {"pluggy", "rich", "omegaconf", "yaml"}


def test_the_measurement_sees_a_heavy_package(site):
    site.add("rlinf-heavy", {"heavy": "heavy_hooks"}, heavy_hooks="import numpy")
    assert imported(["plugins"], PYTHONPATH=str(site.folder)) & HEAVY == {"numpy"}


def test_the_help_costs_less_cpu_than_the_limit():
    start = statistics.median(cpu_ms(["-c", "pass"]) for _ in range(RUNS))
    helped = statistics.median(cpu_ms(["-m", "rlinf_cli", "--help"]) for _ in range(RUNS))
    assert helped - start < HELP_CPU_MS

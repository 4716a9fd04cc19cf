"""Loggers and lifecycle hooks over a run that is resumed; a plugin that raises does not end it."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

HOOKS = """
from rlinf_cli.api import hookimpl
from pathlib import Path

def note(text):
    with Path("heard.txt").open("a") as file:
        file.write(text + "\\n")

@hookimpl
def on_run_start(context):
    print("hello from a plugin")
    note(f"start {context.name} {context.step} {context.steps} {[logger.name for logger in context.loggers]}")

@hookimpl
def on_checkpoint(context): note(f"checkpoint {context.step} {(context.directory / 'manifest.json').is_file()}")

@hookimpl
def on_run_end(context): note(f"end {context.status} {context.step}")
"""
RAISING = """
from rlinf_cli.api import hookimpl

@hookimpl
def on_step_end(context): raise ZeroDivisionError(f"step {context.step}")

@hookimpl
def on_run_end(context): Path("never")
"""


def install(folder, name, source):
    """A distribution `rlinf-NAME` with one plugin, as pip would leave it."""
    information = folder / f"rlinf_{name}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: rlinf-{name}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[rlinf]\n{name} = rlinf_{name}\n")
    (folder / f"rlinf_{name}.py").write_text(source)


def test_curves_go_on_after_a_resume_and_a_broken_plugin_is_named(rlinf, tmp_path):
    install(tmp_path / "site", "listening", HOOKS)
    install(tmp_path / "site", "raising", RAISING)
    away = {"PYTHONPATH": str(tmp_path / "site"), "WANDB_MODE": "offline", "HOME": str(tmp_path)}
    first = rlinf("train", "--algo", "grpo", "--name", "r", "--steps", "2", "log.loggers=[tensorboard, wandb]", "--json",
                  check=True, **away)
    again = rlinf("train", "--resume", "runs/r", "--steps", "4", check=True, **away)

    assert json.loads(first.stdout)["steps"] == 2
    for done, number in ((first, 1), (again, 2)):
        told = [line for line in done.stderr.splitlines() if "rlinf-raising" in line]
        assert len(told) == 1
        assert told[0].startswith("warning    plugin 'raising' (rlinf-raising 1.0): on_step_end raised ZeroDivisionError: step ")
        assert f"runs/r/logs/attempt_{number}/plugins.log" in told[0]
        assert "ZeroDivisionError" in (tmp_path / f"runs/r/logs/attempt_{number}/plugins.log").read_text()
        assert "hello from a plugin" in done.stderr
        assert "loggers    tensorboard: tensorboard --logdir runs/r/tensorboard" in done.stderr
    assert (tmp_path / "heard.txt").read_text().splitlines() == [
        "start r 0 2 ['tensorboard', 'wandb']", "checkpoint 2 True", "end finished 2",
        "start r 2 4 ['tensorboard', 'wandb']", "checkpoint 4 True", "end finished 4"]

    run = tmp_path / "runs/r"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert curve(run / "tensorboard") == [(row["step"], pytest.approx(row["reward/mean"], abs=1e-6)) for row in rows]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    identity = json.loads((run / "trackers.json").read_text())["wandb"]
    assert identity["step"] == 4
    offline = sorted(path.name for path in run.glob("wandb/offline-run-*/*.wandb"))
    assert offline == [f"run-{identity['id']}.wandb"] * 2


def curve(directory: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars("reward/mean")]

"""The real packages: three steps, then the run goes on from step 2 (it was killed after its third), and is read back."""

import json
import sqlite3

import pytest

from rlinf_cli.errors import PluginError
from rlinf_cli.plugins import registry
from rlinf_cli.plugins.loader import load_plugins

OFFLINE = "log.wandb.mode=offline"


def test_wandb_goes_on_in_its_run_and_needs_no_account(attempt, wandb_records, run_directory):
    first = attempt("[wandb]", 0, [0, 1, 2, 3], OFFLINE, "log.wandb.project=p", "log.wandb.tags=[a, b]", "log.wandb.group=g",
                    "seed=5", "ignored.api_key=hunter2hunter2")
    second = attempt("[wandb]", 2, [3, 4], OFFLINE)
    before, after = wandb_records()
    runs = [next(record.run for record in records if record.WhichOneof("record_type") == "run") for records in (before, after)]
    assert runs[0].run_id == runs[1].run_id == json.loads((run_directory / "trackers.json").read_text())["wandb"]["id"]
    assert (runs[0].display_name, runs[0].project, runs[0].run_group, list(runs[0].tags)) == ("run-1", "p", "g", ["a", "b"])
    assert {one.key: one.value_json for one in runs[0].config.update}["seed"] == "5"
    curve = [value for records in (before, after) for value in rewards(records)]
    assert curve == [(0, 0.0), (1, 0.1), (2, 0.2), (3, 0.3), (4, 2.4)]
    assert {record.exit.exit_code for record in before if record.WhichOneof("record_type") == "exit"} == {0}
    assert first["said"] == [f"wandb: wandb sync {run_directory}/wandb/offline-run-*"]
    for one in (first, second):
        assert (one["out"], one["err"], one["heavy"]) == ("", "", [])
    written = b"".join(path.read_bytes() for path in run_directory.rglob("*") if path.is_file())
    assert b"hunter2" not in written


def rewards(records):
    found = []
    for record in records:
        if record.WhichOneof("record_type") == "history":
            values = {one.key or one.nested_key[0]: json.loads(one.value_json) for one in record.history.item}
            found.append((record.history.step.num, values["reward/mean"]))
    return found


def test_wandb_without_an_account_says_what_to_do_and_asks_nobody(attempt, run_directory):
    told = attempt("[wandb]", 0, [1], "log.wandb.mode=online")
    assert told["said"] == ["wandb gets nothing more of this run: UsageError: wandb has no account to write to: run 'wandb "
                            "login', set WANDB_API_KEY, or set log.wandb.mode=offline "
                            f"(traceback: {run_directory}/loggers.log)"]


def test_trackio_goes_on_in_its_run(attempt, run_directory, tmp_path):
    first = attempt("[trackio]", 0, [1, 2, 3], "log.trackio.project=p", "seed=5")
    second = attempt("[trackio]", 2, [3, 4], "log.trackio.project=p", "seed=5")
    with sqlite3.connect(tmp_path / "trackio" / "p.db") as database:
        rows = database.execute("select run_id, run_name, step, metrics from metrics order by step").fetchall()
        ((config,),) = database.execute("select config from configs").fetchall()
    assert len({run for run, *_ in rows}) == 1
    assert [(name, step, json.loads(metrics)["reward/mean"]) for _, name, step, metrics in rows] == [
        ("run-1", 1, 0.1), ("run-1", 2, 0.2), ("run-1", 3, 0.3), ("run-1", 4, 2.4)]
    assert json.loads(config)["seed"] == 5
    assert first["said"] == second["said"] == ["trackio: trackio show --project p"]
    for one in (first, second):
        assert (one["out"], one["heavy"]) == ("", [])


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio"])
def test_without_its_package_a_logger_says_how_to_install_it(monkeypatch, name):
    monkeypatch.setattr(registry, "is_installed", lambda distribution: distribution != name)
    with pytest.raises(PluginError, match=rf"needs {name}, not installed here; run: pip install 'rlinf-cli\[{name}\]'"):
        load_plugins(["loggers"]).get("logger", name)

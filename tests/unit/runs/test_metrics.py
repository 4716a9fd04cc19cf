from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from rlinf_cli.runs.metrics import METRICS, MetricsWriter, describe, read_metrics

DOCS = Path(__file__).parents[3] / "docs" / "runs.md"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def test_a_step_is_a_flat_line_of_floats(path):
    with MetricsWriter(path, 0) as metrics:
        metrics.write(1, {"reward/mean": 0.5, "actor/loss": np.float32(0.25), "actor/lr": torch.tensor(2),
                          "reward/errors": 3})
    line = json.loads(path.read_text())
    assert abs(line.pop("time") - time.time()) < 60
    assert line == {"step": 1, "reward/mean": 0.5, "actor/loss": 0.25, "actor/lr": 2.0, "reward/errors": 3.0}
    assert all(isinstance(line[name], float) for name in line if name != "step")


def test_what_is_not_finite_is_null_and_reads_as_nan(path):
    with MetricsWriter(path, 0) as metrics:
        metrics.write(1, {"reward/mean": math.nan, "actor/loss": math.inf, "actor/lr": 1.0})
    assert '"reward/mean": null, "actor/loss": null' in path.read_text()
    (row,) = read_metrics(path)
    assert math.isnan(row["reward/mean"])
    assert math.isnan(row["actor/loss"])
    assert row["actor/lr"] == 1.0


def test_resuming_leaves_one_line_a_step(path):
    with MetricsWriter(path, 0) as metrics:
        for step in range(1, 8):
            metrics.write(step, {"reward/mean": 0.0})
    with MetricsWriter(path, 5) as metrics:
        for step in range(6, 9):
            metrics.write(step, {"reward/mean": 1.0})
    rows = read_metrics(path)
    assert [row["step"] for row in rows] == list(range(1, 9))
    assert [row["reward/mean"] for row in rows] == [0.0] * 5 + [1.0] * 3


@pytest.mark.parametrize("name", [
    "loss", "", "actor/", "/loss", "actor//loss", "Actor/loss", "actor/lo ss", "step", "a/b\n"])
def test_a_wrong_name_is_named_and_nothing_is_written(path, name):
    with MetricsWriter(path, 0) as metrics:
        with pytest.raises(ValueError, match=re.escape(f"metric name {name!r} is not of the form group/name")):
            metrics.write(1, {"actor/loss": 1.0, name: 1.0})
        assert path.read_text() == ""


@pytest.mark.parametrize("name", ["my_plugin/a", "eval/gsm8k/mean@16", "reward/my.fn-2/mean", "reward/pkg.mod:Fn/mean"])
def test_a_plugin_may_have_names_of_its_own(path, name):
    with MetricsWriter(path, 0) as metrics:
        metrics.write(1, {name: 1.0})
    assert read_metrics(path)[0][name] == 1.0


@pytest.mark.parametrize(("name", "pattern"), [
    ("reward/mean", "reward/mean"),
    ("reward/format/mean", "reward/<fn>/mean"),
    ("timing/step_s", "timing/step_s"),
    ("timing/rollout_s", "timing/<role>_s"),
    ("timing/idle_s", "timing/idle_s"),
    ("rollout/logp_diff/max", "rollout/logp_diff/max"),
])
def test_descriptions(name, pattern):
    assert describe(name).name == pattern


@pytest.mark.parametrize("name", ["my_plugin/a", "reward/a/b/mean", "timing/rollout", "xreward/mean", "reward/meanx"])
def test_what_is_not_known(name):
    assert describe(name) is None


def test_the_registry_is_well_formed():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"[a-z]+(/[a-z_<>@]+)+", metric.name)
        assert metric.meaning
        assert metric.meaning[0].islower()
        assert not metric.name.endswith("_s") or metric.unit in ("s", "1/s")
        assert not metric.name.endswith("_frac") or metric.unit == "fraction"


def test_the_documented_table_is_the_registry():
    rows = re.findall(r"^\| `([a-z]+/[^`]+)` \| (.*?) \| (.*?) \|$", DOCS.read_text(), re.M)
    assert rows == [(metric.name, metric.unit or "–", metric.meaning) for metric in METRICS]

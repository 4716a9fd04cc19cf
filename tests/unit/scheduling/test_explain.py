"""What people read of a search: plans side by side, and why the others lose."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rlinf_cli.scheduling.explain import document, footer, group_width, label, rows, seconds_text, states, times, why
from rlinf_cli.scheduling.plan import Found, Plan, Prediction, Rejected
from rlinf_cli.scheduling.problem import Batch, Curve, Decoding, Law, Problem, Stage
from rlinf_cli.scheduling.simulate import predict
from rlinf_cli.scheduling.tree import parse

STAGES = (
    Stage("rollout", Decoding(Curve((1.0, 64.0), (0.01, 0.02)), 64)),
    Stage("reward", Batch(((1, Law(sample_s=1e-4)),)), ("rollout",), needs_device=False),
    Stage("reference", Batch(((1, Law(token_s=1e-4)),)), ("reward",)),
    Stage("actor", Batch(((1, Law(token_s=3e-4)),)), ("reference",), trains=True),
)


def problem(devices=64, **changes):
    fields = {"stages": STAGES, "devices": devices, "lengths": np.array([100] * 60 + [2000] * 4), "group": 8,
              "hardware": "64 h100"}
    return Problem(**(fields | changes))


def plan(tree, step_s, busy, stages=None, **prediction):
    fields = {"stages": stages or {}, "busy": busy, "memory": dict.fromkeys(busy, 71e9), "bound_by": "rollout tail 38 %"}
    return Plan(parse(tree), prediction=Prediction(step_s, **(fields | prediction)))


BEST = plan("rollout 40 | (reference 24, actor 24)", 574.0,
            {"rollout": {"rollout": 500.0, "sync": 10.0, "idle": 64.0},
             "reference+actor": {"reference": 100.0, "actor": 400.0, "switch": 4.0, "sync": 10.0, "idle": 60.0}},
            {"rollout": 500.0, "reference": 100.0, "actor": 400.0})


def others():
    temporal = plan("rollout 64, reference 64, actor 64", 618.0,
                    {"rollout+reference+actor": {"rollout": 250.0, "reference": 38.0, "actor": 150.0, "switch": 10.0,
                                                 "sync": 10.0,
                                                 "idle": 160.0}})
    spatial = plan("rollout 32 | reference 8 | actor 24", 648.0,
                   {"rollout": {"rollout": 630.0, "sync": 10.0, "idle": 8.0}, "reference": {"reference": 300.0, "idle": 348.0},
                    "actor": {"actor": 400.0, "sync": 10.0, "idle": 238.0}},
                   {"rollout": 630.0, "reference": 300.0, "actor": 400.0})
    return temporal, spatial


# ---- labels ----


@pytest.mark.parametrize(("tree", "expected"), [
    ("rollout 40 | (reference 24, actor 24)", "rollout 40 | (reference, actor) 24"),
    ("rollout 64, reference 64, actor 64", "(rollout, reference, actor) 64"),
    ("rollout 32 | reference 8 | actor 24", "rollout 32 | reference 8 | actor 24"),
    ("(rollout 8 | reference 8), actor 16", "(rollout 8 | reference 8), actor 16"),
    ("rollout 8 | reward | (reference 4, actor 8)", "rollout 8 | (reference 4, actor 8)"),
    ("(rollout 2 | reward), actor 2", "(rollout, actor) 2"), ("rollout 3", "rollout 3"),
])
def test_labels_say_each_number_once(tree, expected):
    assert label(Plan(parse(tree))) == expected


def test_a_label_says_how_far_ahead_generation_is():
    assert label(Plan(parse("rollout 1 | actor 1"), staleness=2)) == "rollout 1 | actor 1, 2 ahead"


@pytest.mark.parametrize(("seconds", "words"), [(0.0812, "81.2 ms"), (5.314, "5.31 s"), (574.1, "574 s"), (1234.5, "1,234 s")])
def test_times_are_short(seconds, words):
    assert seconds_text(seconds) == words


@pytest.mark.parametrize(("tree", "group", "devices"), [
    ("rollout 40 | (reference 24, actor 24)", "rollout", 40), ("rollout 40 | (reference 24, actor 24)", "reference+actor", 24),
    ("(rollout 8 | reference 8), actor 16", "reference+actor", 8), ("rollout 8, actor 5", "rollout", 3), ("rollout 8",
                                                                                                          "critic", 0),
])
def test_devices_of_a_group(tree, group, devices):
    assert group_width(Plan(parse(tree)), group) == devices


# ---- why ----


def test_temporal_loses_by_its_tail():
    assert why(problem(), BEST, others()[0]) == "its 64 devices are idle for 26 % of the time, while the last of a batch is done"


def test_spatial_loses_by_devices_that_wait_for_the_slowest():
    assert why(problem(), BEST, others()[1]) == "actor idle for 37 % of the time on 24 devices: rollout takes 630 s"


def test_devices_that_nobody_uses_are_named():
    small = plan("rollout 20 | actor 20", 900.0, {"rollout": {"rollout": 890.0, "idle": 10.0},
                                                  "actor": {"actor": 880.0, "idle": 20.0}})
    assert why(problem(), BEST, small) == "24 devices are left over"


def test_switches_and_weights_can_be_why():
    def slow(state):
        return plan("rollout 64, reference 64, actor 64", 700.0,
                    {"rollout+reference+actor": {"rollout": 315.0, "reference": 37.0, "actor": 150.0, state: 198.0}})

    assert why(problem(), BEST, slow("switch")) == "devices change hands for 198 s of 700 s"
    assert why(problem(), BEST, slow("sync")) == "devices wait for new weights for 198 s of 700 s"


def test_a_role_with_more_devices_than_it_can_use_can_be_why():
    wide = plan("rollout 56 | (reference 8, actor 8)", 700.0,
                {"rollout": {"rollout": 690.0, "idle": 10.0},
                 "reference+actor": {"reference": 100.0, "actor": 400.0, "idle": 200.0}},
                {"rollout": 450.0, "reference": 100.0, "actor": 400.0})
    assert why(problem(), BEST, wide) == "rollout makes little of 56 devices: 450 s instead of 500 s on 40"


def test_a_role_with_too_few_devices_can_be_why():
    narrow = plan("rollout 40 | (reference 24, actor 24)", 900.0,
                  {"rollout": {"rollout": 890.0, "idle": 10.0},
                   "reference+actor": {"reference": 300.0, "actor": 590.0, "idle": 10.0}},
                  {"rollout": 890.0, "reference": 300.0, "actor": 590.0})
    assert why(problem(), BEST, narrow) == "rollout takes 890 s on 40 devices (chosen: 500 s on 40)"


@pytest.mark.parametrize(("step_s", "words"), [(574.0, "as fast"), (575.0, "as fast as the chosen one"), (600.0, "26 s slower")])
def test_plans_that_differ_in_nothing(step_s, words):
    assert why(problem(), BEST, plan("rollout 40 | (reference 24, actor 24)", step_s, {})) == words


# ---- tables ----


def found():
    temporal, spatial = others()
    return Found(BEST, [Rejected(spatial, ""), Rejected(temporal, "its tail"),
                        Rejected(Plan(parse("rollout 64")), "rollout lacks memory")],
                 considered=1184, simulated=3, seconds=0.0123)


def test_rows_are_the_chosen_one_then_from_fast_to_slow():
    chosen, second, third, fourth = rows(found(), problem())
    assert (chosen.mode, chosen.plan, chosen.verdict) == ("hybrid", "rollout 40 | (reference, actor) 24", "chosen")
    assert (chosen.behind, chosen.memory, chosen.bound_by) == (0.0, 71e9, "rollout tail 38 %")
    assert (second.mode, round(second.behind, 3)) == ("temporal", 0.077)
    assert second.verdict.startswith("its 64 devices are idle for 26 %")
    assert third.mode == "spatial"
    assert third.verdict.startswith("actor idle for 37 %")
    assert (fourth.step_s, fourth.verdict) == (float("inf"), "rollout lacks memory")


def test_what_somebody_asked_for_is_marked():
    one = found()
    verdicts = [row.verdict for row in rows(one, problem(), one.others[0].plan)]
    assert [verdict.startswith("as asked for: ") for verdict in verdicts] == [False, False, True, False]


def test_what_somebody_asked_for_may_be_what_is_chosen():
    (only,) = rows(Found(BEST, [Rejected(BEST, "")]), problem(), BEST)
    assert only.verdict == "chosen, as asked for"


def test_of_plans_that_look_alike_the_fastest_is_shown():
    slower = plan("rollout 64, reward, reference 64, actor 64", 700.0, {})
    shown = rows(Found(BEST, [Rejected(slower, ""), Rejected(others()[0], "")]), problem())
    assert [row.step_s for row in shown] == [574.0, 618.0]


def test_where_the_time_goes_adds_up_to_an_iteration():
    groups = times(BEST)
    assert [(group.group, group.devices) for group in groups] == [("rollout", 40), ("reference+actor", 24)]
    assert states(groups) == ["rollout", "reference", "actor", "switch", "sync", "idle"]
    assert [sum(group.states.values()) for group in groups] == [574.0, 574.0]


@pytest.mark.parametrize(("source", "words"), [
    ("measured", "profile: mine.json measured on 64 h100"),
    ("analytic", "profile: mine.json analytic (roofline) on 64 h100, not measured on your machine"),
    ("emulated", "profile: mine.json emulated on 64 h100"),
])
def test_the_footer_says_where_the_numbers_come_from(source, words):
    lines = list(footer(found(), problem(source=source, notes=("analytic: as said", "lengths are cut")), "mine.json"))
    assert lines[0] == words
    assert lines[-1] == "search: 12 ms, 1,184 plans, 3 simulated"
    assert ("note: analytic: as said" in lines) == (source != "analytic")
    assert "note: lengths are cut" in lines


def test_the_footer_says_what_is_extrapolated():
    best = plan("rollout 40", 1.0, {}, extrapolated=("rollout on 40 replicas (measured up to 2)",))
    assert "extrapolated: rollout on 40 replicas (measured up to 2)" in list(footer(Found(best), problem()))


def test_the_document_has_all_of_it_and_is_json():
    told = json.loads(json.dumps(document(found(), problem(), "mine.json")))
    assert [one["mode"] for one in told["plans"]] == ["hybrid", "temporal", "spatial", "temporal"]
    assert told["plans"][0]["tree"] == "rollout 40 | (reference 24, actor 24)"
    assert told["plans"][0]["busy"]["rollout"]["idle"] == 64.0
    assert told["plans"][1]["behind"] == pytest.approx(618 / 574 - 1)
    assert told["search"] == {"seconds": 0.0123, "considered": 1184, "simulated": 3}
    assert (told["devices"], told["samples"], told["profile"]) == (64, 64, "mine.json")


@pytest.mark.parametrize("tree", ["rollout 8, reward, reference 8, actor 8", "rollout 5 | reward | reference 1 | actor 2",
                                  "rollout 2 | reward | (reference 6, actor 6)"])
def test_real_predictions_can_be_explained(tree):
    """Parts of the devices' time add up, whatever the simulation says."""
    one = problem(devices=8)
    best, other = (Plan(parse(words), prediction=predict(one, Plan(parse(words)))) for words in
                   ("rollout 4 | reward | (reference 4, actor 4)", tree))
    for group in times(other):
        assert sum(group.states.values()) == pytest.approx(other.prediction.step_s)
    assert why(one, best, other)

"""Plans stretched to other devices, assumed lengths, and simulated steps as a trace."""

import numpy as np
import pytest

from rlinf_cli.errors import UsageError
from rlinf_cli.runs.simulation import Simulated, assumed, stretched, write_trace
from rlinf_cli.runs.trace import read_trace
from rlinf_cli.scheduling.plan import Plan
from rlinf_cli.scheduling.plan_file import PlanFile
from rlinf_cli.scheduling.problem import Batch, Curve, Decoding, Law, Problem, Stage
from rlinf_cli.scheduling.simulate_events import run
from rlinf_cli.scheduling.tree import parse, text


def problem(devices=4, unit=1, **more):
    stages = (Stage("rollout", Decoding(Curve((1.0,), (1.0,)), 4, unit)),
              Stage("reward", Batch(((1, Law(token_s=0.01)),)), ("rollout",), needs_device=False),
              Stage("actor", Batch(((1, Law(token_s=0.1)),)), ("reward",), trains=True))
    return Problem(stages, devices, np.tile([1, 2, 4, 9], 16), **more)


@pytest.mark.parametrize(("tree", "devices", "unit", "expected"), [
    ("rollout 2 | (reward, actor 2)", 8, 1, "rollout 4 | (reward, actor 4)"),
    ("rollout 3 | (reward, actor 1)", 10, 1, "rollout 7 | (reward, actor 2)"),  # one is left over
    ("rollout 2 | (reward, actor 2)", 10, 2, "rollout 4 | (reward, actor 5)"),
    ("rollout 4, reward, actor 4", 2, 1, "rollout 2, reward, actor 2"),
    ("rollout 2 | (reward, actor 2)", 2, 4, "rollout 1 | (reward, actor 1)"),  # too few: `validate` says so
    ("rollout 2 | (reward, actr 2)", 8, 1, "rollout 4 | (reward, actr 4)"),
])
def test_each_role_keeps_its_share_of_the_devices(tree, devices, unit, expected):
    file = PlanFile(Plan(parse(tree)), 4, roles={"actor": ((3,),)})
    found = stretched(file, problem(devices, unit))
    assert (text(found.plan.tree), found.devices, found.roles) == (expected, devices, {})


def test_assumed_lengths():
    assert assumed("constant:7", 3, 0).tolist() == [7, 7, 7]
    assert assumed("lognormal:100,0.5", 4000, 1).mean() == pytest.approx(100, rel=0.02)
    heavy = assumed("pareto:10,1.5", 4000, 1)
    assert heavy.min() == 10
    assert heavy.max() > 1000
    for spec in ("", "pareto", "pareto:1,x", "constant:1,2", "lognormal:nan,1"):
        with pytest.raises(UsageError, match="--lengths"):
            assumed(spec, 3, 0)


@pytest.mark.parametrize(("tree", "ahead"), [("rollout 4, reward, actor 4", 0), ("rollout 2 | (reward, actor 2)", 0),
                                             ("rollout 3 | (reward, actor 1)", 2)])
def test_a_trace_has_each_device_group_and_explains_all_of_its_time(tmp_path, tree, ahead):
    made = problem(staleness=ahead, sync_s=0.5, switch_s={("rollout", "actor"): 1.0, ("actor", "rollout"): 2.0})
    plan = Plan(parse(tree), staleness=ahead)
    simulation = run(made, plan, 6)
    write_trace(Simulated(made, plan, simulation, "", simulation.step_s), tmp_path / "sim.json")
    steps = read_trace(tmp_path / "sim.json")
    assert [step.number for step in steps] == [1, 2, 3, 4, 5, 6]
    assert sum(step.seconds for step in steps) == pytest.approx(simulation.ends[-1], rel=1e-3)
    assert set(steps[0].devices) == {"rollout 4": {"devices 0-3"}, "rollout 2": {"devices 0-1", "devices 2-3"},
                                     "rollout 3": {"devices 0-2", "device 3"}}[tree[:9]]
    trained = sum(states.get("actor", 0.0) for step in steps for states in step.devices.values())
    spans = [span for span in simulation.spans if span.stage == "actor" and span.state == "compute"]
    assert trained == pytest.approx(sum(span.ended - span.began for span in spans), rel=1e-3)

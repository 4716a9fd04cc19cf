"""The reference workloads: analytic costs of three published ones, and their times from an independent simulation."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rlinf_cli.scheduling.plan import Plan
from rlinf_cli.scheduling.problem import Batch, Curve, Decoding, Law, Problem, Stage
from rlinf_cli.scheduling.tree import InTurn, Leaf, SideBySide

DATA = Path(__file__).parents[2] / "data/workloads"


@pytest.fixture(scope="session")
def workload():
    """`workload("grpo_7b", devices)`: its problem, and its file as a namespace."""

    def load(name, devices):
        given = json.loads((DATA / f"{name}.json").read_text())
        return SimpleNamespace(problem=problem(given, devices), given=given,
                               reference=next(one for one in given["reference"] if one["devices"] == devices))

    return load


def problem(given, devices):
    lengths, rollout = np.array(given["lengths_tokens"]), given["rollout"]
    base, each = rollout["decode_step_s"]["base"], rollout["decode_step_s"]["per_active_sample"]
    decoding = Decoding(Curve((0.0, 1.0), (base, base + each)), rollout["slots_per_replica"], rollout["devices_per_replica"])
    weights = "model" if given["other_stages_share_weights"] else ""
    stages = [Stage("rollout", decoding)] + [
        Stage(name, Batch(((1, Law(sample_s=stage["seconds_per_token_on_one_device"] * lengths.mean())),)), tuple(stage["after"]),
              weights=weights, trains=name.endswith("train")) for name, stage in given["stages"].items()]
    names = [stage.name for stage in stages]
    switches = {(one, other): given["switch_s"] for one in names for other in names}
    if given["switches_in_temporal"] < len(names) and not weights:
        switches[names[-1], "rollout"] = 0.0  # the reference does not count the way back here
    return Problem(tuple(stages), devices, lengths, switch_s=switches, sync_s=given["weight_sync_s"], dealing="round_robin",
                   interleaves=True, source="analytic")


@pytest.fixture(scope="session")
def reference_plans():
    """`reference_plans(workload)`: mode -> plan and seconds, as the file has them."""
    return plans


def plans(workload):
    names = [stage.name for stage in workload.problem.stages]
    devices, reference = workload.problem.devices, workload.reference
    return {"temporal": (Plan(join(InTurn, [Leaf(name, devices) for name in names])), reference["temporal_s"]),
            "spatial": (Plan(join(SideBySide, map(Leaf, names, reference["best_spatial_split"]))), reference["best_spatial_s"]),
            "hybrid": (Plan(hybrid(workload, names)), reference["best_hybrid_s"])}


def hybrid(workload, names):
    split, kind = workload.reference["best_hybrid_split"], workload.reference["best_hybrid"]
    rollout = Leaf("rollout", split[0])
    if kind == "rollout | others shared":
        others = [Leaf(name, split[1]) for name in names[1:]]
        shared = workload.given["other_stages_share_weights"]
        return SideBySide(rollout, InTurn(*others, per_chunk=True) if shared else join(InTurn, others))
    assert kind == "rollout | inference, then training on all"
    inference = map(Leaf, [name for name in names[1:] if not name.endswith("train")], split[1:])
    training = [Leaf(name, workload.problem.devices) for name in names if name.endswith("train")]
    return join(InTurn, [join(SideBySide, [rollout, *inference]), *training])


def join(kind, parts):
    first, *others = parts
    for other in others:
        first = kind(first, other)
    return first

"""`rlinf train` on a cluster of several nodes (Ray's virtual one) that loses one of them."""

import json
import os
import subprocess
import sys
import time
from collections import Counter

import pytest

pytestmark = pytest.mark.e2e

STEPS = 12

SCRIPT = """
import json, os, sys
os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
import logging, ray
from ray.cluster_utils import Cluster
logging.getLogger("ray").setLevel(logging.ERROR)
cluster, further = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}), {}
print(cluster.address, flush=True)
for line in sys.stdin:
    word, _, name = line.strip().partition(" ")
    if word == "add":
        node = cluster.add_node(num_cpus=1)
        further[node.node_id] = node
    else:
        cluster.remove_node(further.pop(name), allow_graceful=False)
    print(json.dumps(sorted(further)), flush=True)
cluster.shutdown()
"""


class Nodes:
    """The head, on which the command is, and further nodes; each has one CPU."""

    def __init__(self, log):
        self.process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=log.open("w"), text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        self.address = self.process.stdout.readline().strip()
        assert self.address, log.read_text()
        self.further = []

    def have(self, count):
        """So many further nodes, whichever were lost before."""
        while len(self.further) < count:
            self._tell("add")

    def lose(self, number):
        """The node that a run on all of them calls `node-NUMBER`."""
        self._tell(f"remove {self.further[number - 1]}")

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)

    def _tell(self, words):
        self.process.stdin.write(f"{words}\n")
        self.process.stdin.flush()
        self.further = json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def _cluster(tmp_path_factory):
    nodes = Nodes(tmp_path_factory.mktemp("nodes") / "log.txt")
    yield nodes
    nodes.end()


@pytest.fixture
def nodes(_cluster, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    return _cluster


@pytest.fixture
def begin(start, nodes, tmp_path):
    """`begin(further, placement)`: a run on the head and so many further nodes, after its second step, and its directory."""

    def train(further, placement):
        nodes.have(further)
        running = start("train", "--algo", "grpo", "--name", "lost", "--steps", STEPS, "--devices", f"cpu:{further + 1}",
                        f"cluster.address={nodes.address}", f"placement={placement}", "rollout.staleness=1",
                        "checkpoint.every=1", "log.samples=1000")
        run = tmp_path / "runs/lost"
        running.wait_for(lambda: len(lines(run, "metrics.jsonl")) >= 2)
        return running, run

    return train


def lines(run, name):
    path = run / name
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def incidents(run):
    return sorted((one["role"], one["rank"], one["node"], one["action"]) for one in lines(run, "incidents.jsonl"))


def is_whole(run):
    """Every step, in order, with all samples of its prompts, each trained once or counted as dropped."""
    rows, samples = lines(run, "metrics.jsonl"), lines(run, "samples.jsonl")
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    for row in rows:
        dropped = sum(value for name, value in row.items() if name.startswith("actor/dropped/"))
        assert row["actor/samples"] + dropped == row["rollout/samples"]
        assert row["rollout/staleness/max"] <= 1
    assert set(Counter(sample["id"] for sample in samples).values()) == {1}
    assert Counter(sample["step"] for sample in samples) == {row["step"]: row["rollout/samples"] for row in rows}


def test_a_run_goes_on_without_a_node(begin, nodes):
    running, run = begin(2, "rollout:1-2,reward:1,actor:0")
    nodes.lose(1)
    code, output = running.end()
    assert code == 0, output
    assert incidents(run) == [("reward", 0, "node-1", "restarted"), ("rollout", 0, "node-1", "retired")]
    is_whole(run)


def test_a_run_whose_actor_was_on_the_node_says_so_and_can_be_resumed(begin, nodes, rlinf):
    running, run = begin(1, "rollout:0,reward:0,actor:1")
    nodes.lose(1)
    began = time.monotonic()
    code, output = running.end()
    assert code == 1, output
    assert time.monotonic() - began < 60
    assert "actor[0] on node-1 died (its node is gone" in output
    last = int((run / "checkpoints/latest").read_text().strip().removeprefix("step_"))
    assert output.splitlines()[-1] == (
        "Error: actor cannot be started again: all its devices were on node-1, which is gone; replace the node, or go on without "
        f"its devices (cluster.devices, placement). Stopped with a checkpoint of step {last}; go on with: rlinf train --resume "
        "runs/lost")
    assert incidents(run) == [("actor", 0, "node-1", "gave up")]
    assert json.loads((run / "run.json").read_text())["status"] == "failed"
    done = rlinf("train", "--resume", "runs/lost", check=True)  # the head has room for two devices, one behind the other
    assert f"from step {last}" in done.stderr
    is_whole(run)

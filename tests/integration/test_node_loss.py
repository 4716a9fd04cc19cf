"""A node of several is lost, on Ray's virtual cluster: the others go on, and where they cannot it is said why."""

from __future__ import annotations

import json
import re

import pytest

pytestmark = pytest.mark.integration

SCRIPT = """
import json, os, time
os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
import logging, ray
from pathlib import Path
from ray.cluster_utils import Cluster as RayCluster
from rlinf_cli.errors import RlinfError
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.cluster import Cluster
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.worker import Worker, concurrent

class Rollout(Worker):
    @concurrent
    def generate(self, prompts: In[int], samples: Out[int]) -> int:
        for count, leases in enumerate(prompts.leases(1)):
            time.sleep(0.03)
            samples.put((leases[0].item, self.rank, self.node), settles=leases)
        return self.rank
    def sleep(self):
        time.sleep(300)
    def where(self):
        return self.rank, self.node, self.devices

def error(call):
    try:
        return str(call())
    except RlinfError as error:
        return f"{type(error).__name__}: {error}"

def failure(call):
    "Of this very call: the first to wait is told of any death."
    while not call.failures():
        error(call.wait)
    return error(call.wait)

logging.getLogger("ray").setLevel(logging.ERROR)
nodes = RayCluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
further = [nodes.add_node(num_cpus=count) for count in (1, 2)]
incidents = []


cluster = Cluster.start("cpu:4", nodes.address, Path("logs"))
cluster.on_incident = incidents.append
devices = {name: [device.index for device in cluster.devices if device.node == name] for name in ("node-0", "node-1", "node-2")}
[home], [small], large = sorted(devices.values(), key=lambda indices: (len(indices), indices))
with cluster:
    rollout = cluster.launch("rollout", Rollout, [[home], [small], [large[0]]], restartable=True)
    reward = cluster.launch("reward", Rollout, [[large[1]]], restartable=True)
    judge = cluster.launch("judge", Rollout, [large], restartable=True)
    actor = cluster.launch("actor", Rollout, [large])
    for group in (rollout, reward, judge, actor):
        group.ready()
    places = rollout.where().wait() + reward.where().wait()
    prompts, samples, scored = Channel("prompts"), Channel("samples"), Channel("scored")
    prompts.put_many(range(200))
    prompts.close()
    calls = [rollout.generate(prompts, samples), reward.generate(samples, scored)]
    ended = [judge.sleep(), actor.sleep()]
    time.sleep(0.7)
    nodes.remove_node(further[1], allow_graceful=False)
    errors = [*map(failure, ended), error(lambda: cluster.relaunch("actor"))]
    items = sorted(item[0][0] for item in scored)
    results = [call.wait() for call in calls]
    print(json.dumps([places, items, results, rollout.alive, rollout.where().wait() + reward.where().wait(), errors,
                      sorted(map(str, incidents))]), flush=True)
nodes.shutdown()
"""


def test_a_node_is_lost(script):
    run = script(SCRIPT)
    code, out, err = run.end(200)
    assert code == 0, err
    places, items, results, alive, left, errors, incidents = json.loads(out.splitlines()[-1])
    gone = places[2][1]
    assert [node == gone for _, node, _ in places] == [False, False, True, True]
    # a role of several ranks goes on with fewer, a single rank moves, and what they were at is whole
    assert items == list(range(200))
    assert results == [[0, 1], [0]]
    assert alive == [0, 1]
    assert left[:2] == places[:2]
    assert len(left) == 3
    assert left[2][1] != gone
    # what needs more devices than another node has is told, and so is a state that has no devices any more
    died = r"WorkerDiedError: {}\[0\] on {} died \(its node is gone{}, process \d+\) while in sleep; its log: "
    why = "; no other rank of its role is left, and no other node has devices for it"
    assert re.match(died.format("judge", gone, why), errors[0])
    assert re.match(died.format("actor", gone, ""), errors[1])
    assert errors[2].startswith(f"RunError: actor cannot be started again: all its devices were on {gone}, which is gone; ")
    assert [re.sub(r"\(.*?\)| in \d.*", "", one) for one in incidents] == [
        f"judge[0] on {gone} died  while in sleep{why}: gave up",
        f"reward[0] on {gone} died  while in generate: restarted",
        f"rollout[2] on {gone} died  while in generate: retired with 2 of 3 ranks"]

"""A cluster's start and end: what it is like while it runs, and that nothing of it is left, however it ends."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import ray

from rlinf_cli.errors import UsageError
from rlinf_cli.flow import private_ray
from rlinf_cli.flow.cluster import Cluster
from rlinf_cli.flow.private_ray import join

pytestmark = pytest.mark.integration

HEAD = """
import os, signal, sys, threading, time
from pathlib import Path
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.cluster import Cluster
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.worker import Worker

class Busy(Worker):
    def spin(self, with_child=False):
        if with_child:
            import subprocess
            subprocess.Popen(["sleep", "300"])
        while True:
            pass
    def sleep(self):
        time.sleep(300)
    def ping(self):
        return os.getpid()
    def slow_close(self):
        self.slow = True
    def close(self):
        if hasattr(self, "slow"):
            time.sleep(300)
"""


# ---- while it runs ----


def test_everything_listens_on_loopback_only(cluster):
    heard = []
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
            heard += [one.laddr.ip for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN]
    assert len(heard) > 5
    assert {address.removeprefix("::ffff:") for address in heard} == {"127.0.0.1"}


def test_only_what_is_needed_runs(cluster):
    names, commands = set(), ""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
            names.add(process.name())
            commands += " ".join(process.cmdline())
    assert {"gcs_server", "raylet"} <= names
    for unwanted in ("monitor.py", "log_monitor", "dashboard/dashboard.py"):
        assert unwanted not in commands


@pytest.mark.parametrize(("token", "is_let_in"), [(private_ray._token, True), ("0" * 64, False)], ids=["right", "wrong"])
def test_who_has_the_token_is_let_in(cluster, token, is_let_in):
    code = ("import sys; from ray._raylet import GcsClient; "
            "print(len(GcsClient(address=sys.argv[1]).internal_kv_keys(b'', None, timeout=20)))")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run([sys.executable, "-c", code, ray.get_runtime_context().gcs_address], capture_output=True,
                          text=True, timeout=60, check=False,
                          env={**environment, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token})
    assert (done.returncode == 0) == is_let_in, done.stderr
    assert ("AuthenticationError" in done.stderr) != is_let_in


def test_the_devices_of_the_session(cluster):
    assert [(device.index, device.kind, device.node, device.local) for device in cluster.devices] == [
        (0, "cpu", "node-0", "0"), (1, "cpu", "node-0", "1")]
    assert {device.node_id for device in cluster.devices} == {ray.get_runtime_context().get_node_id()}


def test_the_drivers_environment_and_signals_are_left_alone(cluster):
    assert not [name for name in os.environ if name in ("RAY_AUTH_TOKEN", "RLINF_CLUSTER")]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_ray_speaks_into_its_log(cluster):
    assert "Connected to Ray cluster" in (cluster.logs / "ray.log").read_text()
    assert (cluster.logs / "controller.log").exists()


def test_wrong_devices_are_told_before_anything_starts(script):
    run = script(HEAD + """
for devices in ("cpu:none", "cuda:1", "cpu:1000"):
    began = time.monotonic()
    try:
        Cluster.start(devices, directory=Path("logs"))
    except Exception as error:
        print(type(error).__name__, devices in str(error), time.monotonic() - began < 3, os.path.exists("logs"))
""")
    code, out, err = run.end()
    assert (code, err) == (0, "")
    assert out.splitlines() == [f"{kind} True True False" for kind in ("UsageError", "CapacityError", "CapacityError")]


def test_one_cluster_at_a_time(cluster, tmp_path):
    with pytest.raises(UsageError, match="Ray is in use in this process already"):
        Cluster.start("cpu:1", directory=tmp_path)


# ---- how it ends ----


def test_an_orderly_end_leaves_nothing(script, survivors):
    run = script(HEAD + """
with Cluster.start("cpu:2", directory=Path("logs")) as cluster:
    group = cluster.launch("busy", Busy, [[0], [1]])
    Channel("some").put(bytes(1 << 20))
    group.ping().wait()
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
print(time.monotonic() - began, flush=True)
cluster.shutdown()
print(threading.active_count(), sorted({"RAY_AUTH_TOKEN", "RLINF_CLUSTER"} & set(os.environ)), flush=True)
""".replace("sys.stdin.readline()", "time.sleep(0.5)"))
    assert run.line() == "ready"
    family, files = run.family(), run.files()
    assert all(file.stat().st_mode & 0o777 == 0o700 for file in files)
    assert float(run.line()) < 10
    assert run.end() == (0, "1 []\n", "")
    assert survivors(family, 10) == []
    assert not any(file.exists() for file in files)


def test_an_end_with_busy_workers_is_quick(script, survivors):
    run = script(HEAD + """
with Cluster.start("cpu:2", directory=Path("logs")) as cluster:
    group = cluster.launch("busy", Busy, [[0], [1]])
    group.ready()
    group.on(0).sleep()
    group.on(1).spin(with_child=True)
    time.sleep(1.0)
    print("ready", flush=True)
    time.sleep(0.5)
    began = time.monotonic()
print(time.monotonic() - began)
""")
    assert run.line() == "ready"
    family, files = run.family(), run.files()
    assert "sleep" in {process.name() for process in family}
    code, out, err = run.end()
    assert (code, err) == (0, "")
    assert float(out) < 10
    assert survivors(family, 10) == []
    assert not any(file.exists() for file in files)


def test_a_worker_that_does_not_close_is_not_waited_for_long(script, survivors):
    run = script(HEAD + """
with Cluster.start("cpu:1", directory=Path("logs")) as cluster:
    group = cluster.launch("busy", Busy, [[0]])
    group.slow_close().wait()
    print("ready", flush=True)
    began = time.monotonic()
print(time.monotonic() - began)
""")
    assert run.line() == "ready"
    family = run.family()
    code, out, _ = run.end()
    assert code == 0
    assert 4 < float(out) < 15
    assert survivors(family, 10) == []


def test_a_driver_that_is_killed_leaves_nothing(script, survivors, until):
    run = script(HEAD + """
cluster = Cluster.start("cpu:2", directory=Path("logs"))
group = cluster.launch("busy", Busy, [[0], [1]])
group.ready()
group.on(0).sleep()
group.on(1).spin(with_child=True)
time.sleep(1.0)
print("ready", flush=True)
time.sleep(300)
""")
    assert run.line() == "ready"
    family, files = run.family(), run.files()
    assert len(family) > 6
    run.process.kill()
    assert survivors(family, 10) == []
    until(lambda: not any(file.exists() for file in files), 5)


def test_a_driver_that_forgets_to_shut_down_leaves_nothing(script, survivors, until):
    run = script(HEAD + """
cluster = Cluster.start("cpu:1", directory=Path("logs"))
cluster.launch("busy", Busy, [[0]]).ready()
print("ready", flush=True)
time.sleep(0.5)
""")
    assert run.line() == "ready"
    family, files = run.family(), run.files()
    assert run.end()[0] == 0
    assert survivors(family, 10) == []
    until(lambda: not any(file.exists() for file in files), 5)


def test_ctrl_c_in_a_wait(script, survivors):
    run = script(HEAD + """
try:
    with Cluster.start("cpu:2", directory=Path("logs")) as cluster:
        group = cluster.launch("busy", Busy, [[0], [1]])
        group.ready()
        print("ready", flush=True)
        try:
            group.sleep().wait()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            raise
except KeyboardInterrupt:
    sys.exit(130)
""")
    assert run.line() == "ready"
    family = run.family()
    time.sleep(0.5)
    began = time.monotonic()
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.line() == "interrupted"
    assert time.monotonic() - began < 5
    code, _, err = run.end()
    assert (code, err) == (130, "")
    assert time.monotonic() - began < 15
    assert survivors(family, 10) == []


@pytest.mark.parametrize("delay", [0.3, 1.0, 1.8])
def test_ctrl_c_while_it_starts(script, survivors, delay):
    run = script(HEAD + """
print("starting", flush=True)
try:
    with Cluster.start("cpu:2", directory=Path("logs")) as cluster:
        time.sleep(300)
except KeyboardInterrupt:
    sys.exit(130)
""")
    assert run.line() == "starting"
    time.sleep(delay)
    family = run.family()
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.end(30)[0] == 130
    assert survivors(family, 5) == []
    assert not list(Path("/tmp").glob(f"rlinf-*/ray/session_*_{run.process.pid}"))


def test_a_temporary_directory_of_the_greatest_length(script):
    folder = Path("/tmp") / ("d" * 15)
    folder.mkdir()
    try:
        run = script(f"import os\nos.environ['TMPDIR'] = '{folder}'\n" + HEAD + """
with Cluster.start("cpu:1", directory=Path("logs")) as cluster:
    cluster.launch("busy", Busy, [[0]]).ready()
    print(os.listdir(os.environ["TMPDIR"]) != [], flush=True)
""")
        assert run.end() == (0, "True\n", "")
        assert not list(folder.iterdir())
    finally:
        shutil.rmtree(folder)


def test_two_clusters_one_after_the_other(script):
    run = script(HEAD + """
for number in range(2):
    with Cluster.start("cpu:1", directory=Path(f"logs-{number}")) as cluster:
        group = cluster.launch("busy", Busy, [[0]])
        Channel("some").put(number)
        print(Channel("some").get()[0], group.ping().wait()[0] > 0, flush=True)
""")
    assert run.end() == (0, "0 True\n1 True\n", "")


def test_gpus_are_shown_to_each_rank(script):
    """There need be no GPU: what a rank is shown can be told all the same."""
    run = script("""
import json, os
from pathlib import Path
from rlinf_cli.flow import devices
from rlinf_cli.flow.cluster import Cluster
from rlinf_cli.flow.worker import Worker

class Sees(Worker):
    def sees(self):
        return self.device, self.devices, os.environ["CUDA_VISIBLE_DEVICES"], os.environ["OMP_NUM_THREADS"]

os.environ["CUDA_VISIBLE_DEVICES"] = "4,6,7"
devices._count_by_nvml = lambda library: 8
with Cluster.start("cuda:3", directory=Path("logs")) as cluster:
    group = cluster.launch("sees", Sees, [[0], [2, 1]])
    print(json.dumps(group.sees().wait()))
""")
    code, out, err = run.end()
    assert (code, err) == (0, "")
    assert json.loads(out) == [["cuda:0", [0], "4", "1"], ["cuda:0", [2, 1], "7,6", "1"]]


# ---- a cluster that is there already ----


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "127.0.0.1:port", "[::1]:1"])
def test_an_address_where_nobody_answers(address):
    began = time.monotonic()
    with pytest.raises(UsageError, match=re.escape(f"cluster.address={address}: no Ray cluster answers there")):
        join(address)
    assert time.monotonic() - began < 6


def test_roles_on_two_nodes_of_a_cluster(script):
    """Two virtual nodes: shared memory of one is read by the other through its store."""
    run = script("""
import json, os, sys, time
os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
import logging, numpy as np, ray
from pathlib import Path
from ray.cluster_utils import Cluster as RayCluster
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.cluster import Cluster
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.worker import Worker

class Moves(Worker):
    def where(self):
        return self.node, self.rank, ray.get_runtime_context().get_node_id()
    def produce(self, out: Out[int]):
        out.put(np.full(1 << 20, self.rank, np.int32))
    def consume(self, items: In[int]):
        return sorted(int(item.sum()) for item in items)
    def gone(self):
        os._exit(1)

logging.getLogger("ray").setLevel(logging.ERROR)
nodes = RayCluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
nodes.add_node(num_cpus=2)
with Cluster.start("cpu:4", nodes.address, Path("logs")) as cluster:
    makers, takers = cluster.launch("makers", Moves, [[0], [2]]), cluster.launch("takers", Moves, [[1], [3]])
    nodes_of = [device.node_id for device in cluster.devices]
    makers.ready()
    began, asked = time.monotonic(), makers.where()
    places = [(node, rank, node_id == nodes_of[2 * rank]) for node, rank, node_id in asked.wait()]
    ended = time.monotonic()
    in_time = [began - 0.1 < call.timing.began < call.timing.began + call.timing.total < ended + 0.1 for call in asked.calls()]
    channels = [Channel("one"), Channel("two")]
    for rank, channel in enumerate(channels):
        makers.produce(channel)
    sums = [takers.on(rank).consume(channel).wait()[0] for rank, channel in enumerate(channels)]
    try:
        makers.on(1).gone().wait()
    except Exception as error:
        death = f"{type(error).__name__}: {error}"
    clients = ray.get(cluster._stores["node-0"].stats.remote())["clients"]
print(json.dumps([places, sums, death, sorted(clients), in_time]))
nodes.shutdown()
""")
    code, out, err = run.end(90)
    assert code == 0, err
    places, sums, death, clients, in_time = json.loads(out.splitlines()[-1])
    assert places == [["node-0", 0, True], ["node-1", 1, True]]
    assert sums == [[0, 1 << 20]] * 2
    assert in_time == [True, True]
    assert death.startswith("WorkerDiedError: makers[1] on node-1 died")
    assert "node-store@node-1" in clients
    assert {"driver", "makers[0]", "takers[0]", "takers[1]"} <= set(clients)
    assert sorted(path.name for path in (run.directory / "logs").iterdir()) == sorted(
        ["controller.log", "makers-0.log", "makers-1.log", "node-store-node-1.log", "ray.log", "takers-0.log", "takers-1.log"])

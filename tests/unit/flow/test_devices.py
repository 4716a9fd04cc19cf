"""Which devices there are, and which a run gets."""

import logging
import os
import shutil
import subprocess
import sys

import pytest

from rlinf_cli.errors import CapacityError, UsageError
from rlinf_cli.flow import devices
from rlinf_cli.flow.devices import (
    DeviceRequest,
    Node,
    devices_of,
    gpu_memory,
    local_devices,
    parse_devices,
    this_node,
    usable_cores,
    visible_gpus,
)


def node(name="node-0", cores=2, gpus=()):
    return Node(name, f"id-of-{name}", "10.0.0.1", cores, tuple(gpus))


LAPTOP, SERVER = node(cores=2), node(cores=16, gpus="0123")


@pytest.mark.parametrize(("text", "where", "request_"), [
    ("auto", LAPTOP, DeviceRequest("cpu", 2)),
    ("auto", SERVER, DeviceRequest("cuda", 4)),
    ("cpu:1", SERVER, DeviceRequest("cpu", 1)),
    ("cpu:3", SERVER, DeviceRequest("cpu", 3)),
    ("cuda:4", SERVER, DeviceRequest("cuda", 4)),
    ("cuda:1", SERVER, DeviceRequest("cuda", 1)),
])
def test_what_a_value_stands_for(text, where, request_):
    assert parse_devices(text, [where]) == request_
    assert parse_devices(str(request_), [where]) == request_


@pytest.mark.parametrize("text", ["", "2", "cpu", "cpu:", "cpu:0", "cpu:-1", "cpu:two", "gpu:1", "cuda:01", "cpu:1,cuda:1"])
def test_what_is_no_value(text):
    with pytest.raises(UsageError, match=rf"cluster.devices={text}: write auto, cpu:N or cuda:N"):
        parse_devices(text, [LAPTOP])


def test_more_gpus_than_there_are():
    with pytest.raises(CapacityError, match=r"cluster.devices=cuda:5: there are 4 GPUs; ask for at most cuda:4") as caught:
        parse_devices("cuda:5", [SERVER])
    assert caught.value.exit_code == 4


def test_gpus_where_there_is_none():
    with pytest.raises(CapacityError, match=r"cluster.devices=cuda:2: no GPU was found; write cpu:2 for CPU slots"):
        parse_devices("cuda:2", [LAPTOP])


def test_slots_beyond_the_cores_are_allowed_and_said(caplog):
    with caplog.at_level(logging.WARNING):
        assert parse_devices("cpu:8", [LAPTOP]) == DeviceRequest("cpu", 8)
    assert "cluster.devices=cpu:8: there are 2 cores, so the slots share them" in caplog.text


def test_slots_within_the_cores_are_no_matter_for_words(caplog):
    parse_devices("cpu:2", [LAPTOP])
    assert not caplog.records


def test_slots_without_end():
    with pytest.raises(CapacityError, match=r"cluster.devices=cpu:65: there are 2 cores; ask for at most cpu:64"):
        parse_devices("cpu:65", [LAPTOP])
    assert parse_devices("cpu:100", [node(cores=100)]).count == 100


def test_gpus_are_numbered_over_the_nodes():
    found = devices_of(DeviceRequest("cuda", 3), [node("node-0", gpus="57"), node("node-1", gpus="0")])
    assert [(d.index, d.kind, d.node, d.local) for d in found] == [
        (0, "cuda", "node-0", "5"), (1, "cuda", "node-0", "7"), (2, "cuda", "node-1", "0")]
    assert (found[2].node_id, found[2].address) == ("id-of-node-1", "10.0.0.1")


def test_each_core_has_a_slot_before_one_has_two():
    found = devices_of(DeviceRequest("cpu", 7), [node("node-0", cores=2), node("node-1", cores=3)])
    assert [(d.node, d.local) for d in found] == [
        ("node-0", "0"), ("node-0", "1"), ("node-1", "0"), ("node-1", "1"), ("node-1", "2"), ("node-0", "2"), ("node-0", "3")]


def test_the_devices_of_this_machine():
    request = parse_devices("cpu:1")
    assert [(d.index, d.kind, d.address) for d in local_devices(request)] == [(0, "cpu", "127.0.0.1")]
    assert this_node().cores == usable_cores() >= 1


def test_cores_that_a_process_may_use(tmp_path):
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert usable_cores(tmp_path) == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert usable_cores(tmp_path) == len(allowed)


@pytest.mark.parametrize(("files", "cores"), [
    ({"cpu.max": "max 100000\n"}, 8),
    ({"cpu.max": "200000 100000\n"}, 2),
    ({"cpu.max": "50000 100000\n"}, 1),
    ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
    ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
    ({}, 8),
])
def test_the_quota_of_a_container(tmp_path, monkeypatch, files, cores):
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda _: set(range(8)))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert usable_cores(tmp_path) == cores


@pytest.fixture
def proc(tmp_path):
    """What the NVIDIA driver shows of three GPUs."""
    for number in range(3):
        (tmp_path / f"0000:0{number}:00.0").mkdir()
    return tmp_path


@pytest.mark.parametrize(("variable", "gpus"), [
    (None, ("0", "1", "2")), ("", ()), ("1", ("1",)), ("2,0", ("2", "0")), ("1, 2", ("1", "2")), ("-1", ()),
    ("0,-1,1", ("0",)), ("0,3,1", ("0",)), ("GPU-8932f937,1", ("GPU-8932f937", "1")), ("NoDevFiles", ()),
])
def test_gpus_that_are_visible(monkeypatch, proc, variable, gpus):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert visible_gpus("no-such-library.so", proc) == gpus


def test_no_driver_no_gpu(tmp_path):
    assert visible_gpus("no-such-library.so", tmp_path / "nothing") == ()


NVML = """
int nvmlInit_v2(void) { return %d; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 5; return 0; }
int nvmlShutdown(void) { return 0; }
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize(("status", "count"), [(0, 5), (9, 3)])
def test_the_drivers_library_is_asked_first(tmp_path, proc, monkeypatch, status, count):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-o", library], input=NVML % status, text=True, check=True)
    folder = tmp_path / "gpus"
    folder.mkdir()
    for gpu in proc.glob("0000*"):
        gpu.rename(folder / gpu.name)
    assert len(visible_gpus(str(library), folder)) == count


NVML_MEMORY = NVML % 0 + """
typedef struct { unsigned long long total, free, used; } memory;
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(long)(index + 1); return index == 3; }
int nvmlDeviceGetMemoryInfo(void *device, memory *found) { found->total = 80000000000ull + (long)device; return 0; }
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_memory_of_the_smallest_gpu(tmp_path):
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-o", library], input=NVML_MEMORY, text=True, check=True)
    assert gpu_memory(str(library)) == 80000000001
    assert gpu_memory("no-such-library.so") == float("inf")


def test_neither_ray_nor_torch_is_needed():
    code = ("import sys, rlinf_cli.flow.devices as d, rlinf_cli.flow.placement; d.parse_devices('auto'); "
            "sys.exit(any(name in sys.modules for name in ('ray', 'torch', 'numpy')))")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

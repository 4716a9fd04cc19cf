"""Groups of workers in real processes: calls, results, order, control, ports, groups as arguments."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time

import psutil
import pytest
import ray

from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.client import client
from rlinf_cli.flow.handle import gather
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.timeline import spent
from rlinf_cli.flow.worker import Worker, control

pytestmark = pytest.mark.integration


class Echo(Worker):
    def __init__(self, value=None, *, scale=1):
        self.value, self.scale = value, scale
        self.seen = []
        self.placed = (self.role, self.rank, self.world, self.device, self.node, self.devices)

    def echo(self, *args, **kwargs):
        return args, kwargs

    def place(self):
        return self.placed

    def settings(self):
        return self.value, self.scale, str(self.run_directory), self.init_method

    def ping(self):
        pass

    def note(self, item, delay=0.0):
        time.sleep(delay)
        self.seen.append(item)
        return list(self.seen)

    def variables(self, *names):
        return [os.environ.get(name) for name in names]

    def modules(self, *names):
        return [name for name in names if name in sys.modules]

    def speak(self):
        print("through print")
        print("through stderr", file=sys.stderr)
        os.system("echo through a child")
        logging.getLogger("speaker").warning("through logging")

    def wait_a_little(self, compute, sync):
        time.sleep(compute)
        with spent("sync"):
            time.sleep(sync)

    def pid(self):
        return os.getpid()

    def hold(self, size):
        return len(b"x" * size)


def test_every_rank_answers_in_order(launch):
    group = launch(Echo, 2)
    assert group.size == 2
    assert group.echo(1, two=[2]).wait() == [((1,), {"two": [2]})] * 2
    assert [place[1] for place in group.place().wait()] == [0, 1]


def test_what_a_worker_knows_of_itself_before_its_constructor(launch, cluster):
    group = launch(Echo, 2, "v", role="echo", scale=3)
    assert group.place().wait() == [("echo", 0, 2, "cpu", "node-0", (0,)), ("echo", 1, 2, "cpu", "node-0", (1,))]
    (value, scale, directory, meeting), (_, _, _, other) = group.settings().wait()
    assert (value, scale, directory) == ("v", 3, str(cluster.logs.parent))
    assert meeting == other
    assert meeting.startswith("tcp://127.0.0.1:")
    assert launch(Echo).settings().wait()[0][3] == ""


def test_one_rank(launch):
    group = launch(Echo, 2)
    handle = group.on(1).place()
    assert handle.ranks == (1,)
    assert [place[1] for place in handle.wait()] == [1]
    with pytest.raises(IndexError, match="has ranks 0 to 1, not 2"):
        group.on(2)


@pytest.mark.parametrize("value", [
    None, (None,), (1, (2, "x")), {"a": {1, 2}}, b"bytes", bytearray(b"more"), 2**70, float("inf"), [(1,), [2]], {(1, 2): 3}])
def test_values_arrive_as_they_are(launch, value):
    group = launch(Echo)
    args, kwargs = group.echo(value, again=value).wait()[0]
    assert args == (value,)
    assert type(args[0]) is type(value)
    assert kwargs == {"again": value}


def test_large_values_arrive(launch):
    group = launch(Echo)
    value = os.urandom(4 << 20)
    assert group.echo(value).wait()[0][0] == (value,)


def test_calls_return_at_once_and_run_in_order(launch):
    group = launch(Echo)
    group.ready()
    began = time.monotonic()
    handles = [group.note(number, 2.0 if number == 0 else 0.0) for number in range(5)]
    assert time.monotonic() - began < 2.0
    assert not handles[-1].done()
    assert handles[-1].wait() == [[0, 1, 2, 3, 4]]
    assert all(handle.done() for handle in handles)


def test_a_call_before_the_workers_are_there(launch):
    group = launch(Echo, 1, "early")
    assert group.settings().wait()[0][0] == "early"
    group.ready()
    group.ready()


def test_unknown_methods_and_wrong_arguments_are_told_at_the_call(launch):
    group = launch(Echo, role="echo")
    with pytest.raises(AttributeError, match="echo has no method 'ecko'; did you mean 'echo'"):
        group.ecko()
    with pytest.raises(AttributeError, match="echo has no method 'close'"):
        group.on(0).close()
    with pytest.raises(TypeError, match=r"echo.note\(\): missing a required argument: 'item'"):
        group.note()
    with pytest.raises(TypeError, match=r"echo.hold\(\): got an unexpected keyword argument 'sise'"):
        group.hold(1, sise=3)


def test_a_method_with_the_name_of_something_of_the_groups(cluster):
    class Odd(Worker):
        def ready(self): ...

    with pytest.raises(TypeError, match="odd: groups have 'ready' themselves"):
        cluster.launch("odd", Odd, [[0]])


def test_timings_say_where_the_time_went(launch):
    handle = launch(Echo, 2).wait_a_little(0.1, 0.2)
    handle.wait()
    for timing, duration in zip(handle.timings(), handle.durations(), strict=True):
        assert duration == timing.total
        assert 0.3 <= timing.total < 1.5
        assert 0.2 <= timing.kinds["sync"] < 1.0
        assert timing.compute == pytest.approx(timing.total - timing.kinds["sync"])


def test_memory_is_told(launch):
    group = launch(Echo)
    before = group.ping().peak_memory()[0]
    assert 20 << 20 < before < 2 << 30
    group.hold(200 << 20).wait()
    assert group.ping().peak_memory()[0] > before + (150 << 20)


def test_environment(launch, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    group = launch(Echo, 2, env={"MINE": "yes"})
    names = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "CUDA_VISIBLE_DEVICES", "MINE")
    assert group.variables(*names).wait() == [["1", "passive", "", "yes"]] * 2
    assert launch(Echo, env={"OMP_NUM_THREADS": "3"}).variables("OMP_NUM_THREADS").wait() == [["3"]]


def test_a_rank_of_two_slots_has_two_threads(cluster):
    group = cluster.launch("wide", Echo, [[0, 1]])
    try:
        assert group.variables("OMP_NUM_THREADS").wait() == [["2"]]
        assert group.place().wait()[0][-1] == (0, 1)
    finally:
        cluster.stop(group)


def test_nothing_heavy_is_imported_for_a_worker(launch):
    assert launch(Echo).modules("torch", "transformers", "omegaconf", "rich").wait() == [[]]


def test_all_that_is_written_goes_to_the_log(launch, cluster):
    launch(Echo, 1, role="speaker").speak().wait()
    text = (cluster.logs / "speaker-0.log").read_text()
    for words in ("through print", "through stderr", "through a child", "speaker: through logging"):
        assert words in text


class Busy(Worker):
    def __init__(self):
        self.stop = threading.Event()
        self.threads = []

    def run(self):
        self.threads.append(threading.get_ident())
        return self.stop.wait(20)

    @control
    def abort(self, number=0):
        self.stop.set()
        return number, threading.get_ident()

    def thread(self):
        return threading.get_ident()


def test_control_runs_beside_a_call(launch):
    group = launch(Busy)
    group.ready()
    running = group.run()
    time.sleep(0.2)
    assert not running.done()
    (_, thread), = group.abort().wait(5)
    assert running.wait(5) == [True]
    assert thread != group.thread().wait()[0]


def test_control_calls_run_in_order_in_one_thread(launch):
    handles = [launch_.abort(number) for launch_ in [launch(Busy)] for number in range(20)]
    answers = [handle.wait()[0] for handle in handles]
    assert [number for number, _ in answers] == list(range(20))
    assert len({thread for _, thread in answers}) == 1


def test_ordinary_calls_run_in_one_thread(launch):
    group = launch(Busy)
    assert len({group.thread().wait()[0] for _ in range(5)}) == 1


class Producer(Worker):
    def produce(self, numbers: Out[int], count: int, delay: float = 0.0) -> None:
        for number in range(count):
            time.sleep(delay)
            numbers.put((self.rank, number))

    def pass_on(self, numbers: In[int], doubled: Out[int]) -> int:
        count = 0
        for rank, number in numbers:
            doubled.put((rank, 2 * number))
            count += 1
        return count

    def produce_perhaps(self, numbers: Out[int] | None = None) -> None:
        if numbers is not None:
            numbers.put(1)


def test_a_channel_closes_when_every_rank_has_ended(launch, channel):
    group = launch(Producer, 2)
    numbers = channel("numbers")
    group.produce(numbers, 50)
    assert sorted(numbers) == [(rank, number) for rank in range(2) for number in range(50)]


def test_two_calls_may_put_into_one_channel(launch, channel):
    group = launch(Producer)
    numbers = channel("numbers")
    first, second = group.produce(numbers, 3), group.produce(numbers=numbers, count=4)
    assert len(list(numbers)) == 7
    gather([first, second])


def test_a_pipeline_of_roles(launch, channel):
    makers, doublers = launch(Producer, 2), launch(Producer)
    numbers, doubled = channel("numbers"), channel("doubled")
    handles = [makers.produce(numbers, 20, 0.001), doublers.pass_on(numbers, doubled)]
    assert sorted(doubled) == sorted((rank, 2 * number) for rank in range(2) for number in range(20))
    gather(handles)
    assert handles[1].wait() == [40]


def test_one_rank_alone_can_be_the_producer(launch, channel):
    group = launch(Producer, 2)
    numbers = channel("numbers")
    group.on(1).produce(numbers, 2)
    assert list(numbers) == [(1, 0), (1, 1)]


def test_an_optional_port(launch, channel):
    group = launch(Producer, role="producer")
    group.produce_perhaps().wait()
    numbers = channel("numbers")
    group.produce_perhaps(numbers).wait()
    assert list(numbers) == [1]
    with pytest.raises(TypeError, match=r"producer.produce_perhaps\(\): 'numbers' puts into a channel, and list is none"):
        group.produce_perhaps([])


class Caller(Worker):
    def ask(self, group, method):
        return getattr(group, method)().wait(10)

    def ask_one(self, group, rank):
        return group.on(rank).place().wait(10)

    def abort(self, group):
        return group.abort(self.rank).wait(10)

    def produce_through(self, group, channel):
        return group.produce(channel, 5).wait(10)

    def about(self, group):
        return group.role, group.size, [seat.node for seat in group.seats]


def test_a_group_can_be_an_argument(launch):
    echo, caller = launch(Echo, 2, role="echo"), launch(Caller)
    assert [place[1] for place in caller.ask(echo, "place").wait()[0]] == [0, 1]
    assert caller.ask_one(echo, 1).wait()[0][0][1] == 1
    assert caller.about(echo).wait() == [("echo", 2, [seat.node for seat in echo.seats])]


def test_a_worker_can_control_another_roles_running_call(launch):
    busy, caller = launch(Busy), launch(Caller)
    busy.ready()
    running = busy.run()
    caller.abort(busy).wait(10)
    assert running.wait(5) == [True]


def test_ports_hold_for_calls_from_a_worker(launch, channel):
    producer, caller = launch(Producer, 2), launch(Caller)
    numbers = channel("numbers")
    handle = caller.produce_through(producer, numbers)
    assert len(list(numbers)) == 10
    handle.wait()


def test_a_callback_sees_every_call(launch):
    group, seen = launch(Echo, 2), []
    group.on_call = seen.append
    handles = [group.ping(), group.on(1).place()]
    assert seen == handles
    assert [(handle.role, handle.method, handle.ranks) for handle in seen] == [
        (group.role, "ping", (0, 1)), (group.role, "place", (1,))]
    gather(seen)


def test_gathering_nothing():
    gather([])


class Meets(Worker):
    """Its constructor ends when all the others' have begun."""

    def __init__(self, directory, count):
        (directory / f"{self.role}-{self.rank}").touch()
        deadline = time.monotonic() + 30
        while len(list(directory.iterdir())) < count:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_all_ranks_of_all_roles_start_at_the_same_time(launch, tmp_path):
    began = time.monotonic()
    groups = [launch(Meets, 2, tmp_path, 3), launch(Meets, 1, tmp_path, 3)]
    assert time.monotonic() - began < 5  # launching waits for nothing
    for group in groups:
        group.ready()


def test_a_role_is_launched_once(launch, cluster):
    launch(Echo, role="single")
    with pytest.raises(ValueError, match="role 'single' has been launched before"):
        cluster.launch("single", Echo, [[0]])


def test_a_stopped_role_is_gone_and_can_come_again(cluster, until):
    for value in ("first", "second"):
        group = cluster.launch("again", Echo, [[0]], value)
        process = psutil.Process(group.pid().wait()[0])
        assert group.settings().wait()[0][0] == value
        assert "again[0]" in ray.get(cluster._stores["node-0"].stats.remote())["clients"]
        cluster.stop(group)
        until(lambda process=process: not process.is_running())


def test_close_is_called_at_the_end(cluster, tmp_path):
    class Tidy(Worker):
        def __init__(self, path):
            self.path = path

        def close(self):
            self.path.write_text("tidy")

    group = cluster.launch("tidy", Tidy, [[0]], tmp_path / "said")
    group.ready()
    cluster.stop(group)
    assert (tmp_path / "said").read_text() == "tidy"


def test_many_calls_that_nobody_waits_for_are_forgotten(launch):
    group = launch(Echo)
    for _ in range(300):
        group.ping()
    group.ping().wait()
    assert len(group._calls) <= 65
    for _ in range(3):
        group.ping().wait()
    assert client().connected


def test_torch_ranks_can_meet(launch):
    class Meeting(Worker):
        def total(self):
            import torch
            import torch.distributed as dist

            dist.init_process_group("gloo", init_method=self.init_method, rank=self.rank, world_size=self.world)
            value = torch.tensor([float(self.rank + 1)])
            dist.all_reduce(value)
            dist.destroy_process_group()
            return value.item(), torch.get_num_threads()

    assert launch(Meeting, 2).total().wait(50) == [(3.0, 1), (3.0, 1)]


def test_channels_are_names(launch):
    group = launch(Echo)
    assert group.echo(Channel("some")).wait()[0][0][0].name == "some"


def test_a_call_knows_what_joins_it_to_others_and_a_channel_who_used_it(launch, channel):
    makers, doublers = launch(Producer, 2, role="makers"), launch(Producer, role="doublers")
    numbers, doubled = channel("numbers"), channel("doubled")
    made, passed = makers.produce(numbers, 3), doublers.pass_on(numbers, doubled=doubled)
    assert len(list(doubled)) == 6
    gather([made, passed])
    assert (made.wiring.ins, made.wiring.outs) == ((), (numbers.name,))
    assert (passed.wiring.ins, passed.wiring.outs) == ((numbers.name,), (doubled.name,))
    assert numbers.flowed() == ({"makers[0]": 3, "makers[1]": 3}, {"doublers[0]": 6})
    assert doubled.flowed() == ({"doublers[0]": 6}, {"driver": 6})
    assert channel("unused").flowed() == ({}, {})
    asked = launch(Caller).ask(makers.on(1), "produce_perhaps")
    assert asked.wiring.groups == ("makers",)
    asked.wait()

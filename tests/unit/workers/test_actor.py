"""The actor's ranks, each in a thread of this process, with a trainer that only keeps account."""

import queue as queues
import threading
from collections import defaultdict
from typing import ClassVar

import pytest

from rlinf_cli.errors import RunError
from rlinf_cli.flow.errors import ChannelBrokenError
from rlinf_cli.workers import dealing, trained
from rlinf_cli.workers.actor import ActorWorker

METRICS = {"actor/loss": 0.5, "actor/grad_norm": 1.0, "actor/lr": 0.1, "actor/logp_diff_mean": 0.0, "actor/logp_diff_max": 0.0}


class Account:
    """A trainer that keeps what it is told."""

    def __init__(self, config, model, device, ranks, total_steps):
        self.calls = []

    def train_step(self, items, loss, temperature, needs_entropy=False):
        self.calls.append(("train_step", [item.sample.id for item in items]))
        return dict(METRICS)

    def accumulate(self, items, loss, temperature, needs_entropy=False):
        self.calls.append(("accumulate", [item.sample.id for item in items]))

    def finish(self, scale):
        self.calls.append(("finish", scale))
        return dict(METRICS)

    def discard(self):
        self.calls.append(("discard",))

    def offload(self):
        return 12

    def onload(self):
        return 11

    def adapter(self):
        return None

    @property
    def names(self):
        return [call[0] for call in self.calls]

    def trained(self):
        return [name for call in self.calls if call[0] != "finish" for name in call[1]]


class Post:
    """A channel with keys, as far as ranks use one."""

    boxes: ClassVar = defaultdict(queues.Queue)

    def __init__(self, name):
        self.name = name

    def put(self, item, key):
        self.boxes[self.name, key].put(item)

    def get(self, n, key):
        return [self.boxes[self.name, key].get(timeout=30)]

    def flush(self):
        pass


class Breaking:
    """A channel whose producer dies after some items."""

    def __init__(self, *items):
        self.items = list(items)

    def chunks(self, n, at_least=None):
        while self.items:
            yield [self.items.pop(0)]
        raise ChannelBrokenError("rollout[0] died")


@pytest.fixture
def ranks(configure, tiny, start, monkeypatch):
    """`ranks(world, *settings, **more)`: the workers."""
    monkeypatch.setattr("rlinf_torch.trainer.TorchTrainer", Account)
    monkeypatch.setattr(trained, "PolicyPublisher", lambda *arguments: None)
    monkeypatch.setattr(dealing, "Channel", Post)
    Post.boxes.clear()

    def make(world, *settings, **more):
        config = configure(f"model.name={tiny}", "rollout.prompts=4", "algorithm.minibatches=1", *settings)
        return [start(ActorWorker, config, rank, world, **more) for rank in range(world)]

    return make


def train(workers, scored):
    """What each rank's call gives or raises."""
    outcomes = [None] * len(workers)

    def run(rank):
        try:
            outcomes[rank] = workers[rank].train(scored)
        except (RunError, ChannelBrokenError) as error:
            outcomes[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(workers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return outcomes


@pytest.fixture
def four(group):
    return [group(f"0-{number}", 0, 1, 1, length=2 + number) for number in range(4)]


def ids(groups):
    return sorted(one.id for group in groups for one in group)


@pytest.mark.parametrize("world", [1, 2])
def test_groups_are_trained_as_they_come(ranks, queue, four, world):
    workers = ranks(world, stream=True, granularity=(1, 2))
    result, *others = train(workers, queue(*four))
    trainers = [worker._trainer for worker in workers]
    assert sorted(name for trainer in trainers for name in trainer.trained()) == ids(four)
    for trainer in trainers:
        assert trainer.names == ["accumulate", "accumulate", "finish"]
        assert trainer.calls[-1] == ("finish", 1 / sum(len(one.response_ids) for group in four for one in group))
    assert result.metrics["actor/chunk"] == 2
    assert result.metrics["reward/mean"] == pytest.approx(2 / 3)
    assert (result.count, [one.id for one in result.samples]) == (12, ids(four)[:4])
    assert all(other.metrics == {} for other in others)
    assert [worker.trained_steps() for worker in workers] == [1] * world


@pytest.mark.parametrize(("settings", "more"), [
    (["deterministic=true"], {"stream": True}), (["algorithm.name=reinforce++"], {"stream": True}), ([], {})])
@pytest.mark.parametrize("world", [1, 2])
def test_otherwise_a_step_is_gathered_first(ranks, queue, four, settings, more, world):
    workers = ranks(world, *settings, **more)
    train(workers, queue(*four[::-1]))
    assert [worker._trainer.names for worker in workers] == [["train_step"]] * world
    assert sorted(name for worker in workers for name in worker._trainer.trained()) == ids(four)
    if world == 1:
        assert workers[0]._trainer.trained() == ids(four)


@pytest.mark.parametrize("world", [1, 2])
def test_a_step_that_breaks_off_is_forgotten_and_the_next_one_is_whole(ranks, queue, four, world):
    workers = ranks(world, stream=True)
    first, *others = train(workers, Breaking(*four[:2]))
    assert "rollout[0] died" in str(first)
    assert all("has no samples to deal out" in str(other) for other in others)
    for worker in workers:
        assert worker._trainer.names[-1] == "discard"
        assert worker.trained_steps() == 0
        worker._trainer.calls.clear()
    result, *_ = train(workers, queue(*four))
    assert result.count == 12
    assert sorted(name for worker in workers for name in worker._trainer.trained()) == ids(four)


@pytest.mark.parametrize("world", [1, 2])
def test_where_nobody_takes_part_no_step_is_taken(ranks, queue, group, world):
    workers = ranks(world, "algorithm.zero_variance=drop", stream=True)
    result, *_ = train(workers, queue(group("a", 1, 1), group("b", 0, 0)))
    assert result.metrics["actor/skipped"] == 1.0
    for worker in workers:
        assert set(worker._trainer.names) == {"accumulate"}
        assert worker._trainer.trained() == []
        assert worker.trained_steps() == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_step_without_rewards_fails_on_all_ranks(ranks, queue, group, stream):
    workers = ranks(2, stream=stream)
    first, second = train(workers, queue(group("a", float("nan"), error="ValueError: no")))
    assert "no sample of this step has a reward" in str(first)
    assert "has no samples to deal out" in str(second)


def test_pieces_become_as_large_as_they_are_worth(ranks, queue, four, group):
    (worker,) = ranks(1, "rollout.prompts=8", "trainer.micro_batch_tokens=24", stream=True)
    train([worker], queue(*[group(f"0-{number}", 0, 1, length=2) for number in range(8)]))
    # a prompt has two samples of 4 + 2 tokens: two prompts fill a micro-batch, and four pieces are always possible
    assert worker._granularity.take.at_least == 2
    (held,) = ranks(1, "rollout.prompts=8", "trainer.micro_batch_tokens=24", stream=True, granularity=(1, 8))
    train([held], queue(*four))
    assert held._granularity.take.at_least == 1


def test_memory_is_the_trainers(ranks):
    (worker,) = ranks(1)
    assert (worker.offload(), worker.onload()) == (12, 11)

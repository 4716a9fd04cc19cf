"""The reward role's handling of what reward functions give, and of what they raise."""

from types import SimpleNamespace

import numpy as np
import pytest

from rlinf_cli.rl.trajectory import Sample
from rlinf_cli.workers.reward import RewardWorker, split


def sample(number=0):
    return Sample(f"0-0/{number:04d}", "0-0", np.zeros(1, np.int32), np.zeros(1, np.int32), np.ones(1, np.bool_),
                  np.zeros(1, np.float32), np.zeros(1, np.int32), "stop", response=str(number), answer="1")


def worker(score):
    made = RewardWorker.__new__(RewardWorker)
    made._name, made._reward, made._reported = "mine", SimpleNamespace(score=score), set()
    return made


class Queue:
    """What a channel is to `score`: chunks in, chunks out."""

    def __init__(self, items=()):
        self.items = list(items)

    def chunks(self, size, at_least):
        for start in range(0, len(self.items), size):
            yield self.items[start : start + size]

    def put(self, item, weight):
        assert weight == sum(len(one) for one in item)
        self.items.append(item)

    @property
    def samples(self):
        return [one for group in self.items for one in group]


def test_parts_are_kept_by_name():
    assert split({"reward": 1, "format": np.float32(0.5)}, "mine") == (1.0, {"format": 0.5})
    assert split(True, "mine") == (1.0, {})


@pytest.mark.parametrize(("value", "message"), [
    ({"format": 1.0}, r"returned \['format'\] without 'reward'"),
    (float("nan"), "reward=nan, which is not finite"),
    ({"reward": 1.0, "format": float("inf")}, "format=inf, which is not finite"),
    (None, "reward=None, which is not a number"),
    ("1.0", "reward='1.0', which is not a number"),
])
def test_what_is_not_a_finite_number_is_refused(value, message):
    with pytest.raises(ValueError, match=message):
        split(value, "mine")


def test_a_reward_that_raises_costs_only_its_sample(caplog):
    def score(one):
        if one.response == "1":
            raise KeyError("unit")
        return {"reward": 1.0, "exact": 1.0}

    out = Queue()
    worker(score).score(Queue([[sample(number) for number in range(3)]]), out)
    assert [one.reward for one in out.samples if not one.error] == [1.0, 1.0]
    failed = next(one for one in out.samples if one.error)
    assert np.isnan(failed.reward)
    assert failed.error == "KeyError: 'unit'"
    assert "reward mine failed on sample 0-0/0001" in caplog.text


def test_one_cause_is_logged_once(caplog):
    def score(one):
        raise ZeroDivisionError("again")

    out = Queue()
    worker(score).score(Queue([[sample(number) for number in range(4)] for _ in range(25)]), out)
    assert [len(group) for group in out.items] == [4] * 25
    assert sum("failed on sample" in record.message for record in caplog.records) == 1

"""The reward role: what it does with what rewards give, raise, and do to their processes (scenario T1)."""

import math
import os
import time

import numpy as np
import pytest

from rlinf_cli.config.schema import Part, RunConfig
from rlinf_cli.config.sections import RewardConfig
from rlinf_cli.errors import RunError, UsageError
from rlinf_cli.flow.channel import Lease
from rlinf_cli.flow.errors import ChannelClosedError
from rlinf_cli.rl.statistics import step_metrics
from rlinf_cli.rl.trajectory import Sample
from rlinf_cli.workers.reward import RewardWorker
from rlinf_math import register_rewards as math_rewards
from rlinf_rewards import register_rewards

EXTENSIONS = {extension.name: extension for extension in [*register_rewards(), *math_rewards()]}

MINE = """
import os, sys, time

def by_text(response):
    if response == "hang":
        time.sleep(600)
    if response == "exit":
        os._exit(3)
    if response == "segfault":
        os.kill(os.getpid(), 11)
    if response == "raise":
        raise KeyError("unit")
    if response == "nan":
        return float("nan")
    if response == "print":
        print("x" * 3_000_000)
    if response == "fork":
        os.fork()
    return {"reward": 1.0, "longness": len(response)}

def process(sample):
    return os.getpid()

def hang(response):
    time.sleep(600)

def half(response):
    return 0.5
"""


class Queue:
    """What a channel is to the worker, filled and closed beforehand."""

    def __init__(self, groups=()):
        self.groups = list(groups)

    def lease(self, n, *, at_least=1):
        if not self.groups:
            raise ChannelClosedError("closed")
        taken, self.groups = self.groups[:n], self.groups[n:]
        return [Lease(group, "samples", number) for number, group in enumerate(taken)]

    def leases(self, n, *, at_least=None):
        while self.groups:
            yield self.lease(n)

    def put(self, group, weight, settles):
        assert weight == sum(len(sample) for sample in group)
        assert [lease.item for lease in settles] == [group]
        self.groups.append(group)


def sample(group, number, response, answer="1"):
    return Sample(f"0-{group}/{number:04d}", f"0-{group}", np.zeros(1, np.int32), np.zeros(2, np.int32), np.ones(2, np.bool_),
                  np.zeros(2, np.float32), np.zeros(2, np.int32), "stop", response=response, answer=answer)


def group(number, *responses, answer="1"):
    return [sample(number, place, response, answer) for place, response in enumerate(responses)]


def part(name, weight=1.0, **keys):
    extension = EXTENSIONS.get(name)
    return Part(name, weight, extension, extension and extension.load_config()(**keys), f"reward.{name}")


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """Make a worker of parts, each a name or a `Part`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    made = []

    def make(*parts, **keys):
        parts = tuple(part(one) if isinstance(one, str) else one for one in parts)
        config = RunConfig(reward=RewardConfig(name=" + ".join(one.name for one in parts), **keys), chosen={"reward": parts})
        made.append(RewardWorker(config))
        return made[-1]

    yield make
    for one in made:
        one.close()


def score(worker, *groups):
    """All samples, in the order of their ids."""
    out = Queue()
    worker.score(Queue(groups), out)
    assert sorted(len(one) for one in out.groups) == sorted(len(one) for one in groups)
    return sorted((one for samples in out.groups for one in samples), key=lambda one: one.id)


def test_a_part_that_does_no_harm_is_called_in_place(worker):
    one = worker("exact")
    assert one._pool is None
    scored = score(one, group(0, "1", "2"), group(1, "the 1"))
    assert [(each.reward, each.rewards) for each in scored] == [
        (1.0, {"exact": 1.0, "ended": 1.0}), (0.0, {"exact": 0.0, "ended": 1.0}), (1.0, {"exact": 1.0, "ended": 1.0})]


@pytest.mark.parametrize("name", ["exact", "mine.py:by_text"])
def test_an_episode_that_has_failed_gets_no_reward(worker, name):
    failed, fine = group(0, "1", "1")
    failed.error = "tool search failed 3 times"
    scored = score(worker(name), [failed, fine], [sample(1, 0, "1")])
    assert [each.reward for each in scored][1:] == [1.0, 1.0]
    assert math.isnan(scored[0].reward)
    assert scored[0].error == "tool search failed 3 times"


def test_what_turns_have_earned_is_added(worker):
    one, other = group(0, "1", "2")
    one.token_rewards, other.token_rewards = np.array([0.25, 0.5], np.float32), None
    scored = score(worker("exact"), [one, other])
    assert [each.reward for each in scored] == [1.75, 0.0]
    assert scored[0].rewards["turns"] == 0.75
    assert "turns" not in scored[1].rewards


@pytest.mark.parametrize("name", ["exact", "mine.py:by_text"])
def test_a_sub_agent_shares_the_reward_of_its_episode(worker, name):
    leader, one, other, failed = group(0, "1", "raise", "2", "raise")
    one.leader, other.leader = leader.id, failed.id
    scored = score(worker(name), [one, leader, other, failed])
    assert [each.reward for each in scored[:2]] == [1.0, 1.0]
    assert scored[1].rewards == scored[0].rewards
    assert (scored[2].error, scored[2].reward == scored[3].reward) == (scored[3].error, not scored[3].error)


def test_a_function_of_the_users_is_called_in_a_process_of_its_own(worker):
    scored = score(worker("mine.py:process", processes=2), *(group(number, "a", "b") for number in range(40)))
    assert os.getpid() not in {one.reward for one in scored}
    assert all(one.reward > 1 for one in scored)


@pytest.mark.parametrize(("bad", "error"), [
    ("hang", "TimeoutError: reward mine.py:by_text took longer than 0.5 s (reward.timeout_s)"),
    ("exit", "the process of reward mine.py:by_text died (exit code 3)"),
    ("segfault", "the process of reward mine.py:by_text died (signal 11: Segmentation fault)"),
    ("raise", "KeyError: 'unit'"),
    ("nan", "ValueError: reward mine.py:by_text gave reward=nan, which is not finite"),
])
def test_a_reward_that_misbehaves_costs_its_sample_only(worker, bad, error, caplog):
    scored = score(worker("mine.py:by_text", timeout_s=0.5), group(0, "a", bad, "bb"), group(1, "ccc"))
    assert [one.error for one in scored] == ["", error, "", ""]
    assert math.isnan(scored[1].reward)
    assert scored[1].rewards == {}
    assert [one.rewards["longness"] for one in scored if not one.error] == [1, 2, 3]
    assert f"reward mine.py:by_text failed on sample 0-0/0001: {error}" in caplog.text
    metrics = step_metrics(scored, 0)
    assert (metrics["reward/errors"], metrics["reward/timeouts"]) == (1, bad == "hang")


@pytest.mark.parametrize("odd", ["print", "fork"])
def test_printing_and_forking_are_survived(worker, odd, capfd):
    scored = score(worker("mine.py:by_text"), group(0, odd, "a"), group(1, odd, "b"))
    assert [one.reward for one in scored] == [1.0] * 4
    assert len(capfd.readouterr().err) < 1_100_000


def test_an_expression_that_is_never_done(worker):
    """T1: 5^5^5^5."""
    groups = group(0, r"\boxed{5}", r"so it is $5^{5^{5^{5}}}$", "5"), group(1, r"\boxed{\frac{10}{2}}", answer="5")
    scored = score(worker("math", timeout_s=4.0), *groups)
    assert [one.reward for one in scored if not one.error] == [0.0, 0.0, 1.0]
    assert [one.error for one in scored if one.error] == ["TimeoutError: reward math took longer than 4 s (reward.timeout_s)"]


def test_several_parts_are_summed_with_their_weights(worker):
    parts = part("exact"), part("mine.py:half", 0.2), part("length", 2.0, target=1, tolerance=4)
    (right, wrong) = score(worker(*parts), group(0, "1", "2"))
    assert right.reward == pytest.approx(1 + 0.2 * 0.5 - 2 * 0.25)
    assert right.rewards == {"exact": 1.0, "exact.exact": 1.0, "exact.ended": 1.0, "half": 0.5, "length": -0.25}
    assert wrong.reward == pytest.approx(0.2 * 0.5 - 2 * 0.25)
    metrics = step_metrics([right, wrong], 0)
    assert (metrics["reward/exact/mean"], metrics["reward/half/mean"]) == (0.5, 0.5)
    assert "reward/half/errors" not in metrics


def test_a_single_part_has_its_weight_too(worker):
    (scored,) = score(worker(part("exact", 0.5)), group(0, "1"))
    assert (scored.reward, scored.rewards) == (0.5, {"exact": 1.0, "ended": 1.0})


def test_the_part_that_failed_is_named(worker):
    one = worker("exact", "mine.py:half", "mine.py:by_text", timeout_s=0.5)
    groups = group(0, "1", "raise", "hang"), group(1, "1", answer=None)
    scored = score(one, *groups)
    assert [one.error for one in scored] == [
        "", "mine.py:by_text: KeyError: 'unit'", "TimeoutError: reward mine.py:by_text took longer than 0.5 s (reward.timeout_s)",
        "exact: ValueError: the row has no answer, which reward 'exact' compares with (see data.answer_key)"]
    assert all(math.isnan(one.reward) for one in scored[1:])
    metrics = step_metrics(scored, 0)
    assert (metrics["reward/errors"], metrics["reward/by_text/errors"], metrics["reward/exact/errors"]) == (3, 2, 1)
    assert "reward/half/errors" not in metrics


def test_one_that_always_hangs_ends_the_step_in_a_bounded_time(worker, caplog):
    begin = time.monotonic()
    scored = score(worker("mine.py:hang", timeout_s=0.2), *(group(number, *"abcdefgh") for number in range(50)))
    assert time.monotonic() - begin < 20
    timeouts = [one for one in scored if one.error.startswith("TimeoutError: reward mine.py:hang took longer than 0.2 s")]
    assert len(timeouts) == 6  # four of the first group, then two of the next
    assert len(scored) == 400
    assert all(one.error for one in scored)
    assert {one.error for one in scored if one not in timeouts} == {
        f"not scored, since too many before it were lost, the last as {timeouts[0].error}"}
    assert "samples of this step are left alone" in caplog.text


def test_a_prompt_that_always_hangs_does_not_take_the_others_with_it(worker):
    groups = [group(0, "a"), group(1, *["hang"] * 8), *(group(number, "a", "b") for number in range(2, 8))]
    scored = score(worker("mine.py:by_text", timeout_s=0.2), *groups)
    assert sum(not one.error for one in scored) == 13
    assert sum(one.error.startswith("TimeoutError") for one in scored) == 4


def test_the_next_step_tries_anew(worker):
    one = worker("mine.py:by_text", timeout_s=0.2)
    assert all(each.error for each in score(one, *(group(number, *["hang"] * 5) for number in range(4))))
    assert [each.reward for each in score(one, group(0, "a"))] == [1.0]


def test_what_was_left_of_a_step_that_was_broken_off_is_not_taken_for_the_next(worker):
    class Broken(Queue):
        def put(self, group, weight, settles):
            raise BrokenPipeError

    one = worker("mine.py:by_text", timeout_s=0.5)
    with pytest.raises(BrokenPipeError):
        one.score(Queue([group(0, "a", "b"), group(1, "c"), group(2, "hang")]), Broken())
    assert [each.id for each in score(one, group(3, "a"), group(4, "b"))] == ["0-3/0000", "0-4/0000"]


def test_one_cause_is_logged_once(worker, caplog):
    scored = score(worker("mine.py:by_text"), *(group(number, "raise", "raise") for number in range(25)))
    assert len(scored) == 50
    assert sum("failed on sample" in record.message for record in caplog.records) == 1


def test_causes_without_end_do_not_fill_the_log(worker, caplog, tmp_path):
    (tmp_path / "talks.py").write_text("def f(response):\n    raise ValueError(response)\n")
    score(worker("talks.py:f"), *(group(number, f"cause {number}") for number in range(50)))
    assert sum("failed on sample" in record.message for record in caplog.records) == 20


def test_a_function_that_cannot_be_found_ends_the_run(worker):
    with pytest.raises(RunError, match=r"reward mine\.py:nowhere could not be set up: UsageError: reward mine\.py:nowhere"):
        worker("mine.py:nowhere")


def test_a_bad_part_that_is_called_in_place_is_told_at_once(worker):
    with pytest.raises((RunError, UsageError, FileNotFoundError)):
        worker("nowhere.py:f")

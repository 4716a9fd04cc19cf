"""Why nothing is learned (scenario C3)."""

import numpy as np
import pytest

from rlinf_cli.rl.diagnosis import Diagnosis
from rlinf_cli.rl.statistics import step_metrics
from rlinf_cli.rl.trajectory import Sample

NAN = float("nan")


def sample(number, reward=0.0, finish="stop", response="I think it is 7", answer="8", error="", prompts=1):
    nothing = np.zeros(3, np.int32)
    group = f"0-{number % prompts}"
    return Sample(f"{group}/{number:04d}", group, nothing, nothing, nothing == 0, nothing.astype(np.float32), nothing, finish,
                  response=response, answer=answer, reward=reward, error=error)


def diagnosed(*steps, shown=4, **metrics):
    """What is said after steps of these samples."""
    diagnosis = Diagnosis(16)
    for samples in steps:
        gradient = metrics.get("actor/grad_norm", 0.0)
        diagnosis.add({**step_metrics(samples, 0), "actor/grad_norm": gradient, **metrics}, samples[:shown])
    assert diagnosis.steps == len(steps)
    return diagnosis.cause()


def test_no_response_is_right():
    step = [sample(number) for number in range(4)]
    assert diagnosed(step, step) == ("every reward so far is 0: no response is right, or the reward does not find what it looks "
                                     "for (one says 'I think it is 7' where the answer is '8')")


def test_all_responses_are_cut_off():
    step = [sample(number, finish="length", response="x" * 100) for number in range(4)]
    assert diagnosed(step, step) == (f"every reward so far is 0: all responses are cut off at rollout.max_new_tokens=16 before "
                                     f"they end (one says {'x' * 60 + '…'!r} where the answer is '8')")


def test_every_reward_is_the_same():
    step = [sample(number, 0.5, answer=None) for number in range(4)]
    assert diagnosed(step, step) == ("every reward so far is 0.5: from equal rewards nothing is learned "
                                     "(one says 'I think it is 7')")
    assert diagnosed(step, shown=0) == "every reward so far is 0.5: from equal rewards nothing is learned"


def test_negative_rewards_are_no_success():
    assert "no response is right" in diagnosed([sample(number, -1.0) for number in range(4)])


def test_the_samples_of_each_prompt_earn_the_same():
    step = [sample(number, float(number % 2), prompts=2) for number in range(4)]
    said = diagnosed(step, step)
    assert said.startswith("the samples of each prompt earn the same, so that nothing is learned")
    assert "rollout.group_size" in said
    assert diagnosed(step, **{"actor/skipped": 1.0}) == said


def test_what_differs_between_prompts_teaches_those_who_compare_them():
    """REINFORCE++ has a gradient where GRPO has none."""
    step = [sample(number, float(number % 2), prompts=2) for number in range(4)]
    assert diagnosed(step, **{"actor/grad_norm": 0.5}) == ""


@pytest.mark.parametrize("change", [
    [sample(0, 1.0), *(sample(number) for number in range(1, 4))],
    [sample(number, 0.25) for number in range(4)],
])
def test_one_step_that_was_otherwise_is_enough(change):
    same = [sample(number) for number in range(4)]
    assert diagnosed(same, same, change, same, **{"actor/grad_norm": 0.1}) == ""


def test_one_response_that_ended_is_enough():
    cut = [sample(number, finish="length") for number in range(4)]
    assert "cut off" not in diagnosed(cut, [sample(0), *cut[1:]])


def test_no_sample_has_had_a_reward():
    step = [sample(number, NAN, error="ValueError: no unit", response="") for number in range(3)]
    assert diagnosed(step, step) == "no sample has had a reward: ValueError: no unit"
    assert diagnosed(step, shown=0) == "no sample has had a reward"
    assert diagnosed(step, [sample(number, float(number)) for number in range(3)], **{"actor/grad_norm": 1.0}) == ""


def test_supervised_training_has_no_rewards():
    diagnosis = Diagnosis(16)
    for _ in range(6):
        diagnosis.add({"actor/loss": 1.0, "actor/grad_norm": 0.3, "rollout/left_out": 2.0}, [])
    assert diagnosis.cause() == ""


def test_no_example_fits():
    diagnosis = Diagnosis(16)
    for _ in range(6):
        diagnosis.add({"actor/skipped": 1.0, "rollout/left_out": 32.0}, [])
    assert diagnosis.cause() == "no example fits: each response is longer than rollout.max_new_tokens=16"


def test_before_the_first_step_nothing_is_known():
    assert Diagnosis(16).cause() == ""

"""What the actor says of a step."""

import numpy as np
import pytest

from rlinf_cli.rl.trajectory import Sample
from rlinf_cli.workers.actor import merge, nothing_to_train


def row(lr, loss, diff):
    return {"actor/lr": lr, "actor/loss": loss, "actor/logp_diff_mean": diff, "actor/logp_diff_max": 2 * diff}


def test_metrics_of_optimiser_steps_are_averaged():
    merged = merge([row(0.1, 1.0, 1e-7), row(0.2, 3.0, 0.5)])
    assert merged["actor/loss"] == 2.0
    assert merged["actor/lr"] == 0.2


def test_the_mismatch_is_that_of_the_weights_that_made_the_samples():
    merged = merge([row(0.1, 1.0, 1e-7), row(0.2, 3.0, 0.5)])
    assert merged["rollout/logp_diff/mean"] == 1e-7
    assert merged["rollout/logp_diff/max"] == 2e-7
    assert not any("logp_diff_" in name for name in merged)


@pytest.mark.parametrize(("error", "said"), [
    ("ValueError: no such unit", "2 of 2 failed, the first with ValueError: no such unit"),
    ("", "no sample of this step can be trained"),
])
def test_a_step_without_rewards_says_why(error, said):
    nothing = np.zeros(0, np.int32)
    samples = [Sample(f"0-0/{n}", "0-0", nothing, nothing, nothing.astype(bool), nothing.astype(np.float32), nothing, "stop",
                      error=error) for n in range(2)]
    assert said in nothing_to_train(samples)

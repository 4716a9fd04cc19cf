"""One workflow in every mode: wherever its roles run, it makes the same samples and the same policy."""

import hashlib
import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("modes")]

CONFIGS = Path(__file__).parents[2] / "configs"
# a task of which an untrained model has its share: to end early
WORDS = ("--name", "run", "--steps", "5", "--reward", "length", "reward.target=2", "reward.tolerance=8", "trainer.lr=1e-3",
         "rollout.max_new_tokens=10", "rollout.prompts=8", "algorithm.minibatches=1", "log.samples=1000",
         "checkpoint.every=5")
ONE = ("--algo", "grpo", "--devices", "cpu:2", "--placement", "rollout+reward+actor:0")
MODES = {
    "spatial": (CONFIGS / "grpo-digits-spatial.yaml", "--devices", "cpu:2"),
    # three replicas, two of them on one device, which trains too
    "hybrid": (CONFIGS / "grpo-digits-hybrid.yaml", "--devices", "cpu:2", "placement=rollout:0+1+1,reward:0,actor:1"),
    "fused": (CONFIGS / "grpo-digits-fused.yaml", "--devices", "cpu:1"),
}
PLANS = {
    "spatial": "spatial: rollout, reward | actor on cpu:0 | cpu:1",
    "hybrid": "hybrid: rollout | reward | actor on cpu:0-1 | cpu:0 | cpu:1",
    "fused": "temporal: rollout+reward+actor share cpu:0 (+: in one process)",
}


class Run:
    """What a run directory says."""

    def __init__(self, path):
        self.path = path
        self.metrics = self._lines("metrics.jsonl")
        self.samples = sorted(self._lines("samples.jsonl"), key=lambda line: (line["step"], line["id"]))

    def _lines(self, name):
        return [json.loads(line) for line in (self.path / name).read_text().splitlines()]

    def of_step(self, number):
        return [line for line in self.samples if line["step"] == number]

    def numbers(self):
        """What is trained, and what came of it: not how long it took."""
        return [{name: value for name, value in row.items() if name.split("/")[0] in ("actor", "reward", "rollout")}
                for row in self.metrics]

    def weights(self):
        return hashlib.sha256((self.path / "checkpoints/step_000005/model/model.safetensors").read_bytes()).hexdigest()

    def logs(self):
        return {one.name for one in (self.path / "logs/attempt_1").glob("*-[0-9].log")}


@pytest.fixture(scope="module")
def temporal(tmp_path_factory, rlinf_in):
    """Generation and training in turn on one of two devices."""
    directory = tmp_path_factory.mktemp("temporal")
    rlinf_in(directory, ["train", *ONE, *WORDS, "deterministic=true"], check=True)
    return Run(directory / "runs/run")


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_the_same_to_the_last_bit(rlinf, tmp_path, temporal, mode):
    done = rlinf("train", *MODES[mode], *WORDS, "deterministic=true", check=True)
    run = Run(tmp_path / "runs/run")
    assert PLANS[mode] in done.stderr
    assert PLANS[mode] in (run.path / "plan.yaml").read_text()
    assert run.samples == temporal.samples
    assert len(run.of_step(5)) == len(run.of_step(1)) > 50
    assert all(row["actor/grad_norm"] > 0.01 for row in run.metrics)
    assert run.numbers() == temporal.numbers()
    assert run.weights() == temporal.weights()
    assert all(row["rollout/staleness/max"] == 0 for row in run.metrics)
    if mode == "hybrid":
        assert run.logs() >= {"rollout-0.log", "rollout-1.log", "rollout-2.log", "actor-0.log"}
    if mode == "fused":
        assert run.logs() == {"rollout+reward+actor-0.log"}
        assert "one copy of 1.8 MB of 2.0 MB of weights" in (run.path / "logs/attempt_1/rollout+reward+actor-0.log").read_text()


def test_otherwise_the_samples_are_the_same_and_numbers_to_rounding(rlinf, tmp_path, temporal):
    """Trained as it comes, a step is summed in another order; Adam makes more of that with every step."""
    rlinf("train", *MODES["spatial"], *WORDS, check=True)
    run = Run(tmp_path / "runs/run")
    assert [line["response"] for line in run.of_step(1)] == [line["response"] for line in temporal.of_step(1)]
    first, expected = run.metrics[0], temporal.metrics[0]
    assert first["actor/chunk"] < 8  # not the whole step at once
    assert first["actor/grad_norm"] == pytest.approx(expected["actor/grad_norm"], rel=1e-6)
    for row, other in zip(run.metrics, temporal.metrics, strict=True):
        assert row["actor/loss"] == pytest.approx(other["actor/loss"], abs=1e-3)

"""Where more prompts are asked than are trained: what a step takes from the data, and when it has enough."""

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.rl.trajectory import Prompt
from rlinf_cli.runs.preflight import prepare
from rlinf_cli.runs.step import RunStep

INSTALLED = load_plugins(None)


class Channel:
    def __init__(self):
        self.done = []

    def limit(self, count):
        self.done.append(f"limit {count}")

    def put_many(self, items):
        self.done.append(f"put {len(items)}")

    def close(self):
        self.done.append("close")


@pytest.fixture
def channels():
    return Channel(), Channel()


def batch():
    return [Prompt(str(number)) for number in range(12)]


def test_the_answers_are_limited_before_anything_is_asked(channels):
    asked, answers = channels
    log = answers.done = asked.done
    RunStep(0, "train-000000", batch, enough=8).feed(asked, answers)
    assert log == ["limit 8", "put 12", "close"]


@pytest.mark.parametrize("enough", [0, 8])
def test_other_channels_are_not(channels, enough):
    asked, answers = channels
    RunStep(0, "train-000000", batch, enough).feed(asked)
    RunStep(0, "eval-000000", batch).feed(asked, answers)
    assert asked.done == ["put 12", "close"] * 2
    assert answers.done == []


@pytest.mark.parametrize(("algorithm", "overprovision", "taken"), [
    ("grpo", 0, 8), ("grpo", 0.5, 12), ("dapo", 0.3, 11), ("sft", 0.5, 8)])
def test_a_step_takes_so_many_rows(algorithm, overprovision, taken):
    config = resolve([], [f"algorithm.name={algorithm}", "rollout.prompts=8", f"rollout.overprovision={overprovision}",
                          "cluster.devices=cpu:1"], {}, INSTALLED)
    assert len(prepare(config, INSTALLED).stream.batch(0)) == taken

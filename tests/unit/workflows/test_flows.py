"""What each workflow calls, in which order, on which channels."""

from types import SimpleNamespace

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.workflows.reasoning import Reasoning
from rlinf_cli.workflows.supervised import Supervised

INSTALLED = load_plugins(None)


class Recorder:
    """A flow of `steps` steps that writes down every call; `collect` says that it is enough after so many rounds."""

    training = True

    def __init__(self, config, steps=1, enough_after=1):
        self.config, self.calls = config, []
        self._steps, self._enough_after, self._collected = steps, enough_after, 0

    def groups(self, *roles):
        return [SimpleNamespace(name=role, **{method: self._call(role, method) for method in (
            "generate", "score", "collect", "train", "publish_weights", "tokenise")}) for role in roles]

    def steps(self):
        for index in range(self._steps):
            self._collected = 0
            self.calls.append(f"step {index}")
            yield Step(index, self)

    def wait(self, call):
        self.calls.append(f"wait {call}")
        self._collected += 1
        return [self._collected >= self._enough_after, True]

    def _call(self, role, method):
        def call(*arguments):
            names = [getattr(argument, "name", argument) for argument in arguments]
            self.calls.append(" ".join([f"{role}.{method}", *names]))
            return method

        return call


class Step:
    def __init__(self, index, flow):
        self.index, self._flow, self._made = index, flow, 0

    def channels(self, *names):
        self._made += 1
        return [f"{name}{self._made}" for name in names]

    def feed(self, channel, answers=None):
        self._flow.calls.append(f"feed {channel}" + (f" for {answers}" if answers else ""))


@pytest.fixture
def run():
    def make(workflow, *settings, **more):
        flow = Recorder(resolve([], settings, {}, INSTALLED), **more)
        workflow.run(flow)
        return flow.calls

    return make


def test_grpo(run):
    step = ["rollout.generate prompts1 samples1", "reward.score samples1 scored1", "feed prompts1 for samples1",
            "actor.train scored1", "actor.publish_weights rollout"]
    assert run(Reasoning(), steps=2) == ["actor.publish_weights rollout", "step 0", *step, "step 1", *step]


def test_with_a_reference(run):
    assert run(Reasoning(), "algorithm.kl_coef=0.1")[2:] == [
        "rollout.generate prompts1 samples1", "reward.score samples1 scored1", "feed prompts1 for samples1",
        "reference.score scored1 referenced2", "actor.train referenced2", "actor.publish_weights rollout"]


@pytest.mark.parametrize(("enough_after", "fed", "trained"), [(1, 1, "scored1"), (2, 2, "scored2"), (9, 3, "scored3")])
def test_dynamic_sampling_goes_on_until_it_is_enough_or_the_rounds_are_used_up(run, enough_after, fed, trained):
    calls = run(Reasoning(), "algorithm.name=dapo", "algorithm.rounds=3", enough_after=enough_after)
    assert sum(call.startswith("feed") for call in calls) == fed
    assert [call for call in calls if call.startswith("actor.collect")] == [
        f"actor.collect scored{number}" for number in range(1, min(enough_after, 2) + 1)]
    assert calls[-2:] == [f"actor.train {trained}", "actor.publish_weights rollout"]


def test_supervised(run):
    assert run(Supervised(), "algorithm.name=sft") == [
        "step 0", "feed rows1", "examples.tokenise rows1 tokenised1", "actor.train tokenised1"]


@pytest.mark.parametrize(("workflow", "before"), [
    (Reasoning(), []), (Supervised(), ["actor.publish_weights rollout", "wait publish_weights"])])
def test_an_evaluation_trains_nothing(workflow, before):
    flow = Recorder(resolve([], ["algorithm.name=grpo", "algorithm.kl_coef=0.1"], {}, INSTALLED))
    assert workflow.evaluate(flow, Step(0, flow)) == "scored1"
    assert flow.calls == [*before, "rollout.generate prompts1 samples1", "reward.score samples1 scored1",
                          "feed prompts1 for samples1"]


def test_where_nothing_is_trained_the_engines_have_the_weights():
    flow = Recorder(resolve([], ["algorithm.name=sft"], {}, INSTALLED))
    flow.training = False
    Supervised().evaluate(flow, Step(0, flow))
    assert flow.calls == ["rollout.generate prompts1 samples1", "reward.score samples1 scored1", "feed prompts1 for samples1"]

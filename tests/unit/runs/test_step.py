"""What a step knows of its channels and calls."""

from types import SimpleNamespace

import pytest

from rlinf_cli.flow.handle import Wiring
from rlinf_cli.runs import step as module
from rlinf_cli.runs.step import RunStep
from rlinf_cli.scheduling.graph import Called, Flowed

FLOWED = {"prompts": ({"driver": 4}, {"rollout[0]": 1, "rollout[1]": 3}),
          "samples": ({"rollout[0]+actor[0]": 2, "rollout[1]+actor[1]": 2}, {})}


class Channel:
    def __init__(self, name):
        self.name = name

    def flowed(self):
        return FLOWED[self.name.partition("-")[0]]


@pytest.fixture
def step(monkeypatch):
    monkeypatch.setattr(module, "Channel", Channel)
    return RunStep(0, "train-000000", list)


def test_channels_are_called_as_the_workflow_calls_them(step):
    """Those of a later round are others."""
    made = [step.channels("prompts", "samples"), step.channels("prompts"), step.channels("prompts")]
    names = [channel.name for channels in made for channel in channels]
    assert [step.labels[name] for name in names] == ["prompts", "samples", "prompts-2", "prompts-3"]
    assert len(set(names)) == 4


def test_calls_are_those_that_were_issued(step):
    prompts, samples = step.channels("prompts", "samples")
    for role, method, wiring in (("rollout", "generate", Wiring((prompts.name,), (samples.name,))),
                                 ("actor", "train", Wiring((samples.name, "its-own"))),
                                 ("actor", "publish_weights", Wiring(groups=("rollout",)))):
        step.handles.append(SimpleNamespace(role=role, method=method, wiring=wiring))
    assert step.calls() == [Called("rollout", "generate", ("prompts",), ("samples",)),
                            Called("actor", "train", ("samples", "its-own")),
                            Called("actor", "publish_weights", groups=("rollout",))]


def test_what_flowed_is_counted_by_role(step):
    step.channels("prompts", "samples")
    assert step.flowed() == {"prompts": Flowed({"driver": 4}, {"rollout": 4}), "samples": Flowed({"rollout+actor": 4}, {})}

"""What a method takes from and puts into channels, read from its annotations."""

from __future__ import annotations

import sys
import types
from textwrap import dedent

import pytest

from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.ports import In, Out, Port, ports
from rlinf_cli.rl.trajectory import Prompt, Sample


class Rollout:
    def generate(self, prompts: In[Prompt], samples: Out[Sample], temperature: float = 1.0) -> None: ...

    def nothing(self, a, b: int = 3) -> None: ...


def test_ports_by_name_under_postponed_evaluation():
    assert ports(Rollout.generate) == {"prompts": Port("in", Prompt), "samples": Port("out", Sample)}


def test_a_method_without_ports():
    assert ports(Rollout.nothing) == {}


def module_of(source, **names):
    """A module made of source text, as a plugin's file would be."""
    module = types.ModuleType("made_up")
    vars(module).update(names)
    exec(compile(dedent(source), "made_up.py", "exec", dont_inherit=True), vars(module))
    return module


def test_ports_of_annotations_that_are_evaluated_at_once():
    module = module_of("""
        class Worker:
            def score(self, samples: In[int], scored: Out["Sample"]): ...
    """, In=In, Out=Out)
    assert ports(module.Worker.score) == {"samples": Port("in", int), "scored": Port("out", "Sample")}


@pytest.mark.parametrize(("annotation", "item"), [
    ("In[torch.Tensor]", "torch.Tensor"),
    ("In[np.ndarray | None]", "np.ndarray"),
    ("In[None | Segment]", "Segment"),
    ("In[list[Segment]]", "list[Segment]"),
    ("In[Segment['float32']]", "Segment"),
])
def test_names_that_only_type_checkers_know(annotation, item):
    module = module_of(f"""
        from __future__ import annotations

        class Worker:
            def take(self, items: {annotation}): ...
    """)
    port = ports(module.Worker.take)["items"]
    assert port.direction == "in"
    assert repr(port.item) == item


def test_names_of_the_module_come_before_builtins():
    module = module_of("""
        from __future__ import annotations

        class list: ...

        class Worker:
            def take(self, items: In[list], more: Out[int]): ...
    """)
    assert ports(module.Worker.take) == {"items": Port("in", module.list), "more": Port("out", int)}


def test_other_annotations_are_not_looked_at():
    module = module_of("""
        from __future__ import annotations

        class Worker:
            def take(self, this: 1 / 0, items: flow.ports.In[int], Inner: nonsense[]): ...
    """.replace("Inner: nonsense[]", "inner: Inner['x']"), flow=sys.modules["rlinf_cli.flow"])
    assert set(ports(module.Worker.take)) == {"items"}


def test_a_port_is_a_channel_to_everybody_else():
    assert In[int].__origin__ is Channel
    assert Out[Sample].__metadata__ == (Port("out", Sample),)

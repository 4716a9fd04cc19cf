"""What a workflow sees of the run it is part of. It says what flows, never where anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from rlinf_cli.config.schema import RunConfig
    from rlinf_cli.flow.channel import Channel
    from rlinf_cli.flow.group import Group
    from rlinf_cli.flow.handle import Handle


@dataclass(frozen=True)
class Role:
    """One role of a workflow: which worker does it, and on how many ranks it can run."""

    name: str
    worker: str
    """`module:Class` of the worker."""
    ranks: Literal["all", "one"] = "all"
    """`all`: one rank a device of its placement; `one`: a single rank."""
    stateful: bool = False
    """Holds what is trained: gets the checkpoint on resume and writes its own part of it."""
    scores: bool = False
    """Computes with a model of its own on whole sequences: what its worker does, it does on devices."""
    chunked: bool = False
    """Takes its items in chunks: its constructor has a keyword `granularity`, their bounds (or None)."""


class Step(Protocol):
    """One pass of the macro flow."""

    index: int

    def channels(self, *names: str) -> Sequence[Channel]:
        """New channels of this step's own, which end with it."""
        ...

    def feed(self, prompts: Channel, answers: Channel | None = None) -> None:
        """Put the next prompts of the data, a batch, and close the channel. Where more are asked than are trained
        (`rollout.overprovision`), the channel of their answers closes as soon as there are enough."""
        ...


class Flow(Protocol):
    """The run as its workflow sees it."""

    config: RunConfig
    training: bool
    """False where a checkpoint is evaluated: its engines have the weights, and there is no role that holds a state."""

    def groups(self, *roles: str) -> Sequence[Group]:
        """The launched groups. Their calls return handles at once; the flow waits for them where the step ends."""
        ...

    def steps(self) -> Iterator[Step]:
        """The steps still to do. The next one comes as soon as the staleness bound (`rollout.staleness`, S) lets it start: once
        everything of the step S + 1 before it has ended, strictly on-policy (S=0) that is of the one before. All calls of a
        step are issued before the next one is asked for; they belong to it, and end in whatever order."""
        ...

    def wait(self, call: Handle) -> list[Any]:
        """A call's results by rank, in the middle of a step: where what to do next depends on them. A failure of any other call
        under way is raised as well: the one that others follow from."""
        ...


class Workflow(Protocol):
    """Target of a workflow extension, built without arguments."""

    def roles(self, config: RunConfig) -> Sequence[Role]: ...

    def run(self, flow: Flow) -> Any:
        """Train: the whole macro flow."""
        ...

    def evaluate(self, flow: Flow, step: Step) -> Channel:
        """Answer and score what `step.feed` gives, with the weights that are there; the channel of scored groups."""
        ...

"""One pass of the macro flow: its channels and calls, and what is reported of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.errors import ChannelError
from rlinf_cli.flow.handle import Handle
from rlinf_cli.rl.trajectory import Prompt, Sample
from rlinf_cli.runs.breakdown import StepTime


@dataclass
class StepReport:
    """What is known of a step once all of it has ended."""

    number: int
    """Counts from 1; 0: the evaluation before the first step."""
    metrics: dict[str, float] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    evaluated: list[Sample] = field(default_factory=list)
    """Samples of the evaluation after the step."""
    tokens: int = 0
    count: int = 0
    batches: int = 0
    """Batches of prompts taken from the data since the start of the run, by this step and those before it."""
    left_out: list[str] = field(default_factory=list)
    """Why samples could not be trained on, a sentence for each reason that is new."""
    time: StepTime | None = None
    """Where the time went; None where there was no step."""
    evaluation: tuple[float, float] | None = None
    """When the evaluation after the step began and ended, by `time.monotonic`."""


class RunStep:
    """Its channels carry the step's name and are dropped with it. `handles` are the calls that were issued in it ·
    `enough`: answered prompts of a batch after which the others are dropped; 0: none are."""

    def __init__(self, index: int, name: str, next_prompts: Callable[[], Sequence[Prompt]], enough: int = 0) -> None:
        self.index = index
        self.began = time.monotonic()
        self.handles: list[Handle] = []
        self.fed = 0
        """Prompts."""
        self._name, self._next_prompts, self._enough = name, next_prompts, enough
        self._channels: list[Channel] = []

    def channels(self, *names: str) -> list[Channel]:
        made = [Channel(f"{name}-{self._name}-{len(self._channels) + place}") for place, name in enumerate(names)]
        self._channels += made
        return made

    def feed(self, prompts: Channel, answers: Channel | None = None) -> None:
        if self._enough and answers is not None:
            answers.limit(self._enough)
        batch = self._next_prompts()
        self.fed += len(batch)
        prompts.put_many(batch)
        prompts.close()

    def cancel(self, reason: str) -> None:
        """Break every channel of the step, so that whoever waits on one ends."""
        for channel in self._channels:
            with contextlib.suppress(ChannelError):  # the controller is gone: nobody waits any more
                channel.break_off(reason)

    def drop(self) -> None:
        for channel in self._channels:
            channel.drop()

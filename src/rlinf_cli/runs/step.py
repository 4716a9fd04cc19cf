"""One pass of the macro flow: its channels and calls, and what is reported of it."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.errors import ChannelError
from rlinf_cli.flow.handle import Handle
from rlinf_cli.rl.segment import Episode
from rlinf_cli.rl.trajectory import Prompt, Sample
from rlinf_cli.runs.breakdown import StepTime
from rlinf_cli.scheduling.graph import Called, Flowed
from rlinf_cli.workers.engine_share import Usage


@dataclass
class StepReport:
    """What is known of a step once all of it has ended."""

    number: int
    """Counts from 1; 0: the evaluation before the first step."""
    metrics: dict[str, float] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    evaluated: list[Sample | Episode] = field(default_factory=list)
    """Samples of the evaluation after the step."""
    videos: dict[str, bytes] = field(default_factory=dict)
    """Name of the file -> its content, of episodes of the evaluation."""
    tokens: int = 0
    count: int = 0
    env_steps: int = 0
    """Steps of environments."""
    batches: int = 0
    """Batches of prompts taken from the data since the start of the run, by this step and those before it."""
    lengths: list[int] = field(default_factory=list)
    """Tokens of the responses of all samples, group by group."""
    usage: dict[str, list[Usage]] = field(default_factory=dict)
    """Of the engines, by role."""
    chunks: dict[str, int] = field(default_factory=dict)
    """Role -> pieces in which its ranks took their items, the most of a rank; without roles that do not count them."""
    moves: dict[tuple[str, str], float] = field(default_factory=dict)
    """(role, `onload` or `offload`) -> seconds that its state took to its devices, or off them."""
    left_out: list[str] = field(default_factory=list)
    """Why samples could not be trained on, a sentence for each reason that is new."""
    time: StepTime | None = None
    """Where the time went; None where there was no step."""
    evaluation: tuple[float, float] | None = None
    """When the evaluation after the step began and ended, by `time.monotonic`."""

    def throughput(self, seconds: float, devices: int) -> dict[str, float]:
        """What so many seconds on so many devices came to."""
        if self.env_steps:
            return {"throughput/env_steps_per_s": self.env_steps / seconds}
        return {"throughput/tokens_per_s": self.tokens / seconds,
                "throughput/tokens_per_device_per_s": self.tokens / seconds / max(1, devices),
                "throughput/samples_per_s": self.count / seconds}


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
        self.labels: dict[str, str] = {}
        """Name of a channel -> what the workflow calls it; the second of a name is `NAME-2`."""

    def channels(self, *names: str) -> list[Channel]:
        made = [Channel(f"{name}-{self._name}-{len(self._channels) + place}") for place, name in enumerate(names)]
        self._channels += made
        self.labels |= {channel.name: self._label(name) for channel, name in zip(made, names, strict=True)}
        return made

    def feed(self, prompts: Channel, answers: Channel | None = None) -> None:
        if self._enough and answers is not None:
            answers.limit(self._enough)
        batch = self._next_prompts()
        self.fed += len(batch)
        prompts.put_many(batch)
        prompts.close()

    def calls(self) -> list[Called]:
        """What was issued, with the workflow's names of channels."""
        return [Called(handle.role, handle.method, self._labels(handle.wiring.ins), self._labels(handle.wiring.outs),
                       handle.wiring.groups) for handle in self.handles]

    def flowed(self) -> dict[str, Flowed]:
        """Items that went through each channel, so far."""
        return {self.labels[channel.name]: Flowed(*map(_by_role, channel.flowed())) for channel in self._channels}

    def _labels(self, channels: Sequence[str]) -> tuple[str, ...]:
        return tuple(self.labels.get(name, name) for name in channels)

    def _label(self, name: str) -> str:
        known = sum(label == name or label.startswith(f"{name}-") for label in self.labels.values())
        return f"{name}-{known + 1}" if known else name

    def cancel(self, reason: str) -> None:
        """Break every channel of the step, so that whoever waits on one ends."""
        for channel in self._channels:
            with contextlib.suppress(ChannelError):  # the controller is gone: nobody waits any more
                channel.break_off(reason)

    def drop(self) -> None:
        for channel in self._channels:
            channel.drop()


def _by_role(counts: Mapping[str, int]) -> dict[str, int]:
    """`{'rollout[0]+actor[0]': 16}` as `{'rollout+actor': 16}`, all ranks together."""
    roles: Counter[str] = Counter()
    for process, count in counts.items():
        roles["+".join(one.partition("[")[0] for one in process.split("+"))] += count
    return dict(roles)

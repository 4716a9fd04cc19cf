"""The run as its workflow sees it: groups, steps, and the bookkeeping at the end of each step."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.data.stream import PromptStream, StreamItem
from rlinf_cli.errors import RlinfError
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.errors import ChannelError
from rlinf_cli.flow.group import Group
from rlinf_cli.flow.handle import Handle, gather
from rlinf_cli.rl.trajectory import Prompt, Sample
from rlinf_cli.workers.actor import TrainResult

_DRIVER = "driver"
"""This process's name as a producer."""


@dataclass
class StepReport:
    """What is known of a step once all of it has ended. `number` counts from 1."""

    number: int
    metrics: dict[str, float] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    tokens: int = 0
    count: int = 0
    batches: int = 0
    """Batches of prompts taken from the data since the start of the run."""


class RunStep:
    """One pass of the macro flow; its channels carry its number and are dropped with it."""

    def __init__(self, index: int, next_batch: Callable[[], Sequence[StreamItem]]) -> None:
        self.index = index
        self._next_batch = next_batch
        self._channels: list[Channel] = []

    def channels(self, *names: str) -> list[Channel]:
        made = [Channel(f"{name}-{self.index:06d}-{len(self._channels) + place}") for place, name in enumerate(names)]
        self._channels += made
        return made

    def feed(self, prompts: Channel) -> None:
        prompts.put_many([Prompt(item.id, item.row.text, item.row.messages, item.row.answer, item.row.columns, item.row.target)
                          for item in self._next_batch()])
        prompts.close()

    def cancel(self, reason: str) -> None:
        """Break every channel of the step, so that whoever waits on one ends."""
        for channel in self._channels:
            with contextlib.suppress(ChannelError):  # closed: nobody waits on it
                channel.declare([_DRIVER])
                channel.done(_DRIVER, reason)

    def drop(self) -> None:
        for channel in self._channels:
            channel.drop()


class RunFlow:
    """Implements `rlinf_cli.workflows.base.Flow` over launched groups.

    `first`: steps trained before; `batches`: batches of prompts that they took from the data.
    """

    def __init__(self, config: RunConfig, groups: Mapping[str, Group], stream: PromptStream, first: int, batches: int,
                 on_step: Callable[[StepReport], None]) -> None:
        self.config = config
        self._groups, self._stream, self._first, self._on_step = groups, stream, first, on_step
        self._batches = batches
        self._handles: list[Handle] = []
        self._step: RunStep | None = None
        self._began = 0.0
        for group in groups.values():
            group.on_call = self._handles.append

    def groups(self, *roles: str) -> list[Group]:
        return [self._groups[role] for role in roles]

    def steps(self) -> Iterator[RunStep]:
        self._settle()
        for index in range(self._first, self.config.steps):
            self._began = time.perf_counter()
            self._step = RunStep(index, self._next_batch)
            yield self._step
            handles = self._settle()
            step, self._step = self._step, None
            step.drop()
            self._on_step(self._report(index, handles, time.perf_counter() - self._began))

    def cancel(self, reason: str, patience: float) -> None:
        """End what is under way: break the step's channels and wait up to `patience` seconds for the calls to end.

        A step that was trained nevertheless is reported like any other.
        """
        if self._step is None:
            return
        self._step.cancel(reason)
        self._abort()
        handles, deadline = list(self._handles), time.monotonic() + patience
        self._handles.clear()
        ended = [handle for handle in handles if _ended(handle, deadline - time.monotonic())]
        report = self._report(self._step.index, ended, time.perf_counter() - self._began) if ended else None
        if report is not None and report.count:
            self._on_step(report)

    def _next_batch(self) -> Sequence[StreamItem]:
        self._batches += 1
        return self._stream.batch(self._batches - 1)

    def _abort(self) -> None:
        """Tell the roles that can be told in the middle of a call; what they make of it is for nobody."""
        known = len(self._handles)
        for group in self._groups.values():
            if "abort" in group.methods:
                group.abort()
        del self._handles[known:]

    def _settle(self) -> list[Handle]:
        handles = list(self._handles)
        gather(handles, self.config.cluster.call_timeout_s)
        self._handles.clear()
        return handles

    def _report(self, index: int, handles: Sequence[Handle], seconds: float) -> StepReport:
        results = [result for handle in handles for result in handle.wait() if isinstance(result, TrainResult)]
        report = StepReport(index + 1, batches=self._batches)
        for result in results:
            report.metrics.update(result.metrics)
            report.samples.extend(result.samples)
            report.tokens += result.tokens
            report.count += result.count
        report.metrics.update(timing_metrics(handles, seconds))
        report.metrics["throughput/tokens_per_s"] = report.tokens / seconds
        report.metrics["throughput/samples_per_s"] = report.count / seconds
        report.metrics["progress/epoch"] = self._stream.epoch(self._batches)
        return report


def timing_metrics(handles: Sequence[Handle], seconds: float) -> dict[str, float]:
    """Where a step's time went: computing time of each role (mean over its ranks), weights on their way, the rest idle."""
    metrics: dict[str, float] = {"timing/step_s": seconds}
    sync = 0.0
    for handle in handles:
        timings = handle.timings()
        name = f"timing/{handle.role}_s"
        metrics[name] = metrics.get(name, 0.0) + sum(timing.compute for timing in timings) / len(timings)
        sync += max(timing.kinds.get("sync", 0.0) for timing in timings)
    busy = sum(value for name, value in metrics.items() if name != "timing/step_s") + sync
    return metrics | {"timing/sync_s": sync, "timing/idle_s": max(0.0, seconds - busy)}


def _ended(handle: Handle, patience: float) -> bool:
    """Whether the call came to a good end in time. Its error would only repeat why the run was cancelled."""
    try:
        handle.wait(max(0.01, patience))
    except RlinfError:
        return False
    return True

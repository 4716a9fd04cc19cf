"""The run as its workflow sees it: groups, steps, and the bookkeeping at the end of each step."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.data.stream import PromptStream, StreamItem
from rlinf_cli.errors import RlinfError
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.errors import ChannelBrokenError, ChannelError
from rlinf_cli.flow.group import Group
from rlinf_cli.flow.handle import Handle, gather
from rlinf_cli.rl.trajectory import Prompt, Sample, SampleGroup
from rlinf_cli.runs.breakdown import Placed, StepTime, break_down
from rlinf_cli.runs.evaluation import Evaluation
from rlinf_cli.workers.result import TrainResult

_DRIVER = "driver"
"""This process's name as a producer."""
_CHUNK = 256
"""Groups taken from a channel at once, where so many wait."""


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
    """Batches of prompts taken from the data since the start of the run."""
    left_out: list[str] = field(default_factory=list)
    """Why samples could not be trained on, a sentence for each reason that is new."""
    time: StepTime | None = None
    """Where the time went; None where there was no step."""
    evaluation: tuple[float, float] | None = None
    """When the evaluation after the step began and ended, by `time.monotonic`."""


class RunStep:
    """One pass of the macro flow; its channels carry its kind and number and are dropped with it."""

    def __init__(self, index: int, next_prompts: Callable[[], Sequence[Prompt]], kind: str = "train") -> None:
        self.index = index
        self._next_prompts, self._kind = next_prompts, kind
        self._channels: list[Channel] = []

    def channels(self, *names: str) -> list[Channel]:
        made = [Channel(f"{name}-{self._kind}-{self.index:06d}-{len(self._channels) + place}")
                for place, name in enumerate(names)]
        self._channels += made
        return made

    def feed(self, prompts: Channel) -> None:
        prompts.put_many(self._next_prompts())
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


class LaunchedFlow:
    """Launched groups and their calls under way: a `rlinf_cli.workflows.base.Flow` that has nothing to train."""

    training = False

    def __init__(self, config: RunConfig, groups: Mapping[str, Group]) -> None:
        self.config = config
        self._groups = groups
        self._handles: list[Handle] = []
        self._step: RunStep | None = None
        for group in groups.values():
            group.on_call = self._handles.append

    def groups(self, *roles: str) -> list[Group]:
        return [self._groups[role] for role in roles]

    def steps(self) -> Iterator[RunStep]:
        return iter(())

    def wait(self, call: Handle) -> list[Any]:
        gather(self._handles, self.config.cluster.call_timeout_s)
        return call.wait()

    def evaluate(self, evaluation: Evaluation, number: int) -> list[SampleGroup]:
        """The scored answers to the prompts of an evaluation. Raises as `gather`."""
        self._step = step = RunStep(number, evaluation.prompts, "eval")
        scored = evaluation.workflow.evaluate(self, step)
        try:
            chunks = scored.chunks(_CHUNK, at_least=1, timeout=self.config.cluster.call_timeout_s)
            groups = [group for chunk in chunks for group in chunk]
        except ChannelBrokenError:
            self._settle()  # a call has failed: its error says more
            raise
        self._settle()
        self._step = None
        step.drop()
        return groups

    def cancel(self, reason: str, patience: float) -> None:
        """End what is under way: break the step's channels and wait up to `patience` seconds for the calls to end."""
        if self._step is not None:
            self._step.cancel(reason)
            self._abort()
            self._await_calls(patience)

    def _await_calls(self, patience: float) -> list[Handle]:
        """The calls that come to a good end within so many seconds."""
        deadline = time.monotonic() + patience
        return [handle for handle in self._handles if _ended(handle, deadline - time.monotonic())]

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


class RunFlow(LaunchedFlow):
    """Implements `rlinf_cli.workflows.base.Flow` for training.

    `first`: steps trained before; `batches`: batches of prompts that they took from the data.
    """

    training = True

    def __init__(self, config: RunConfig, groups: Mapping[str, Group], stream: PromptStream, first: int, batches: int,
                 on_step: Callable[[StepReport], None], evaluation: Evaluation | None = None,
                 on_phase: Callable[[str], None] = lambda text: None) -> None:
        super().__init__(config, groups)
        self._stream, self._first, self._on_step, self._evaluation = stream, first, on_step, evaluation
        self._on_phase = on_phase
        self._batches = batches
        self._began = 0.0

    def steps(self) -> Iterator[RunStep]:
        self._settle()
        if self._first == 0:
            self._evaluated(StepReport(0, batches=self._batches))
        for index in range(self._first, self.config.steps):
            self._began = time.monotonic()
            self._step = RunStep(index, self._next_prompts)
            yield self._step
            handles = self._settle()
            step, self._step = self._step, None
            step.drop()
            self._evaluated(self._report(index, handles))

    def cancel(self, reason: str, patience: float) -> None:
        """End what is under way: break the step's channels and wait up to `patience` seconds for the calls to end.

        A step that was trained nevertheless is reported like any other.
        """
        if self._step is not None:
            self._step.cancel(reason)
            self._abort()
            self.catch_up(patience)

    def catch_up(self, patience: float = 0.0) -> None:
        """Report the cancelled step if it was trained nevertheless, which is waited for up to `patience` seconds."""
        if self._step is None:
            return
        ended = self._await_calls(patience)
        report = self._report(self._step.index, ended) if ended else None
        if report is not None and report.count:
            self._step = None
            self._on_step(report)

    def _evaluated(self, report: StepReport) -> None:
        """Evaluate where that is due and report; a step whose evaluation fails is reported without it."""
        try:
            if self._evaluation is not None and self._evaluation.is_due(report.number):
                self._on_phase("evaluating")
                began = time.monotonic()
                results = self._evaluation.results(self.evaluate(self._evaluation, report.number), report.number)
                report.evaluation = (began, time.monotonic())
                report.metrics["timing/eval_s"] = report.evaluation[1] - began
                for result in results:
                    report.metrics.update(result.metrics())
                    report.evaluated += result.samples[: self.config.log.samples]
        finally:
            if report.metrics:
                self._on_step(report)

    def _next_prompts(self) -> list[Prompt]:
        self._batches += 1
        return [prompt_of(item) for item in self._stream.batch(self._batches - 1)]

    def _report(self, index: int, handles: Sequence[Handle]) -> StepReport:
        results = [result for handle in handles for result in handle.wait() if isinstance(result, TrainResult)]
        report = StepReport(index + 1, batches=self._batches)
        for result in results:
            report.metrics.update(result.metrics)
            report.samples.extend(result.samples)
            report.tokens += result.tokens
            report.count += result.count
            report.left_out.extend(result.left_out)
        report.time = self._time(handles)
        seconds = report.time.seconds
        report.metrics.update(report.time.metrics())
        report.metrics["throughput/tokens_per_s"] = report.tokens / seconds
        report.metrics["throughput/tokens_per_device_per_s"] = report.tokens / seconds / max(1, len(report.time.devices))
        report.metrics["throughput/samples_per_s"] = report.count / seconds
        report.metrics["memory/peak_gb"] = max((peak for handle in handles for peak in handle.peak_memory()), default=0) / 1e9
        report.metrics["progress/epoch"] = self._stream.epoch(self._batches)
        return report

    def _time(self, handles: Sequence[Handle]) -> StepTime:
        """Of the step that has just ended, on the devices of all roles."""
        ended = time.monotonic()
        seats = {(group.role, rank): seat.devices for group in self._groups.values() for rank, seat in enumerate(group.seats)}
        calls = [Placed(call, seats[call.role, call.rank]) for handle in handles for call in handle.calls()]
        return break_down(calls, {device for devices in seats.values() for device in devices}, self._began, ended)


def prompt_of(item: StreamItem) -> Prompt:
    row = item.row
    return Prompt(item.id, row.text, row.messages, row.answer, row.columns, row.target)


def _ended(handle: Handle, patience: float) -> bool:
    """Whether the call came to a good end in time. Its error would only repeat why the run was cancelled."""
    try:
        handle.wait(max(0.01, patience))
    except RlinfError:
        return False
    return True

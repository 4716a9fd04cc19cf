"""The run as its workflow sees it: groups, steps, and the bookkeeping at the end of each step.

Several steps may be open at once (`rollout.staleness`): the gate says when the next one may start. They end, and are
reported, in their order.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.data.stream import PromptStream, StreamItem
from rlinf_cli.errors import RlinfError
from rlinf_cli.flow.errors import ChannelBrokenError
from rlinf_cli.flow.group import Group
from rlinf_cli.flow.handle import Handle, gather
from rlinf_cli.flow.timeline import Call
from rlinf_cli.flow.underway import under_way
from rlinf_cli.rl.trajectory import Prompt
from rlinf_cli.runs.breakdown import Placed, StepTime, step_time
from rlinf_cli.runs.episodes import EpisodesEvaluation
from rlinf_cli.runs.evaluation import Evaluation
from rlinf_cli.runs.step import RunStep, StepReport
from rlinf_cli.state.staleness import Ended, Hold, Lifted, StalenessGate, Started
from rlinf_cli.workers.engine_share import Usage
from rlinf_cli.workers.result import TrainResult
from rlinf_cli.workers.surplus import Surplus

_SLICE_S = 0.5
"""How long to wait at once for what was cancelled."""
_LOOK_S = 0.02
_CHUNK = 256
"""Groups taken from a channel at once, where so many wait."""


class Interlude(RlinfError):
    """The workflow is left after a step that was asked for, to be begun again from there: nothing has failed."""


class LaunchedFlow:
    """Launched groups and their calls under way: a `rlinf_cli.workflows.base.Flow` that has nothing to train.

    `life`: how often the workflow was begun before on the same groups; the channels of each time are its own.
    """

    training = False

    def __init__(self, config: RunConfig, groups: Mapping[str, Group], life: int = 0) -> None:
        self.config = config
        self._groups, self._life = groups, life
        self._limit = config.cluster.call_timeout_s
        self._thread = threading.get_ident()
        self._before: list[Handle] = []
        """Calls that were issued before the first step."""
        self._issuing: list[Handle] | None = self._before
        """Where the calls that are issued now belong."""
        self._evaluating: RunStep | None = None
        for group in groups.values():
            group.on_call = self._called

    def groups(self, *roles: str) -> list[Group]:
        return [self._groups[role] for role in roles]

    def steps(self) -> Iterator[RunStep]:
        return iter(())

    def wait(self, call: Handle) -> list[Any]:
        gather([call], self._limit, beside=self._under_way())
        return call.wait()

    def evaluate(self, evaluation: Evaluation | EpisodesEvaluation, number: int) -> list[Any]:
        """What the results of an evaluation are made from: scored answers to its prompts, or episodes. Raises as `gather`."""
        self._evaluating = step = RunStep(number, self._name("eval", number), evaluation.prompts)
        self._issuing = step.handles
        scored = evaluation.workflow.evaluate(self, step)
        try:
            chunks = scored.chunks(_CHUNK, at_least=1, timeout=self._limit)
            groups = [group for chunk in chunks for group in chunk]
        except ChannelBrokenError:
            self._settle(step.handles)  # a call has failed: its error says more
            raise
        self._settle(step.handles)
        self._evaluating = self._issuing = None
        step.drop()
        return groups

    def cancel(self, reason: str, patience: float) -> None:
        """End what is under way: break the channels and wait up to `patience` seconds for the calls to end."""
        self._issuing = None
        steps = self._open_steps()
        for step in steps:
            step.cancel(reason)
        if steps:
            self._abort()
            _await(self._under_way(), patience)

    def _called(self, handle: Handle) -> None:
        """Calls of other threads, such as those of supervision, are none of the workflow's."""
        if self._issuing is not None and threading.get_ident() == self._thread:
            self._issuing.append(handle)

    def _open_steps(self) -> list[RunStep]:
        return [] if self._evaluating is None else [self._evaluating]

    def _under_way(self) -> list[Handle]:
        return [*self._before, *(handle for step in self._open_steps() for handle in step.handles)]

    def _abort(self) -> None:
        """Tell the roles that can be told in the middle of a call; what they make of it is for nobody."""
        for group in self._groups.values():
            if "abort" in group.methods:
                group.abort()

    def _settle(self, handles: Sequence[Handle]) -> None:
        gather(handles, self._limit, beside=self._under_way())

    def _name(self, kind: str, number: int) -> str:
        return f"{kind}-{number:06d}" + (f".{self._life}" if self._life else "")


class RunFlow(LaunchedFlow):
    """Implements `rlinf_cli.workflows.base.Flow` for training.

    `first`: steps trained before; `batches`: batches of prompts that they took from the data · `on_issued`: told the number
    of a step when all its calls have been issued, and calls of later steps may follow before it ends; what it issues belongs
    to the step · `is_urgent`: whether the end of a step, by its number, is to be reported before the next one begins. The
    others are reported while the next one is under way · `on_end`: told of a step whose calls have ended, and whose channels
    are still there.
    """

    training = True

    def __init__(self, config: RunConfig, groups: Mapping[str, Group], stream: PromptStream, first: int, batches: int,
                 on_step: Callable[[StepReport], None], evaluation: Evaluation | EpisodesEvaluation | None = None,
                 on_phase: Callable[[str], None] = lambda text: None, on_issued: Callable[[int], None] = lambda number: None,
                 is_urgent: Callable[[int], bool] = lambda number: False, life: int = 0,
                 on_end: Callable[[RunStep], None] = lambda step: None) -> None:
        super().__init__(config, groups, life)
        self._stream, self._first, self._on_step, self._evaluation = stream, first, on_step, evaluation
        self._on_phase, self._on_issued, self._is_urgent, self._on_end = on_phase, on_issued, is_urgent, on_end
        self._gate = StalenessGate(config.rollout.staleness, first)
        self._open: deque[RunStep] = deque()
        self._batches = batches
        self._taken: dict[int, int] = {}
        """Index of an open step -> batches taken by it and those before it."""
        self._ended = 0.0
        self._untold: Callable[[], StepReport] | None = None
        """Of a step that has ended and is still to be reported, which takes time that nobody should wait for."""
        self._leaving = False
        self._over: list[RunStep] = []
        """Steps that have ended, whose channels are still to be dropped."""

    def steps(self) -> Iterator[RunStep]:
        self._settle(self._before)
        self._before, self._issuing = [], None
        if self._first == 0:
            self._evaluated(StepReport(0, batches=self._batches))
        for index in range(self._first, self.config.steps):
            self._make_room()
            if self._leaving:
                self._drain()
                raise Interlude(f"the workflow is left before step {index + 1}")
            yield self._start(index)
            if not self._is_last(index):
                self._on_issued(index + 1)
            self._issuing = None
        self._drain()

    def leave(self) -> None:
        """Start no further step: `steps` raises Interlude once those under way have ended and are reported."""
        self._leaving = True

    def cancel(self, reason: str, patience: float) -> None:
        """End what is under way: break the channels and wait up to `patience` seconds for the calls to end.

        Steps that were trained nevertheless are reported like any other, in their order.
        """
        super().cancel(reason, patience)
        self.catch_up()
        for step in self._open_steps():
            if all(handle.done() for handle in step.handles):
                step.drop()

    def finish_made(self, patience: float) -> None:
        """Wait up to `patience` seconds for the open steps, in their order, of which everything has been made that is to be
        trained: where several roles train, a step that is cancelled now might be trained by some of them only."""
        for step in self._open:
            if not all(handle.done() for handle in step.handles if handle.wiring.outs):
                return
            _await(step.handles, patience)

    def catch_up(self) -> None:
        """Report the cancelled steps that have been trained nevertheless."""
        self._tell()
        while self._open:
            step = self._open[0]
            handles = [handle for handle in step.handles if handle.done() and _ended(handle)]
            if any(handle.method == "train" and handle not in handles for handle in step.handles):
                return
            report = self._report(step, handles, time.monotonic(), tuple(self._open)[1:])
            if not report.count:
                return
            self._open.popleft()
            self._on_step(report)

    def _open_steps(self) -> list[RunStep]:
        return [*self._open, *super()._open_steps()]

    def _start(self, index: int) -> RunStep:
        self._gate.handle(Started(index))
        if self._is_evaluated(index):
            self._gate.handle(Hold(index))
        rollout = self.config.rollout
        step = RunStep(index, self._name("train", index), lambda: self._next_prompts(index),
                       rollout.prompts if rollout.overprovision else 0)
        self._open.append(step)
        self._taken[index] = self._batches
        self._issuing = step.handles
        return step

    def _drain(self) -> None:
        while self._open:
            self._end_oldest()
        self._tell()

    def _make_room(self) -> None:
        """Wait until the next step may start."""
        while not self._gate.may_start():
            self._end_oldest()

    def _end_oldest(self) -> None:
        step = self._open[0]
        self._tell()
        self._settle(step.handles)
        ended = time.monotonic()
        self._open.popleft()
        report = partial(self._report, step, step.handles, ended, tuple(self._open))
        self._on_end(step)
        self._over.append(step)
        self._gate.handle(Ended(step.index))
        if self._is_evaluated(step.index):
            self._evaluated(report())
            self._gate.handle(Lifted(step.index))
        else:
            self._untold = report
            if self._is_urgent(step.index + 1):
                self._tell()

    def _tell(self) -> None:
        """Report the step that has ended last, if it is not yet, and drop what is over."""
        for step in self._over:
            step.drop()
        self._over.clear()
        untold, self._untold = self._untold, None
        if untold is not None:
            self._on_step(untold())

    def _is_evaluated(self, index: int) -> bool:
        return self._evaluation is not None and self._evaluation.is_due(index + 1)

    def _is_last(self, index: int) -> bool:
        """Whether no call of a later step can be issued before this one has ended."""
        return not self.config.rollout.staleness or index + 1 == self.config.steps or self._is_evaluated(index)

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
                    report.videos.update(result.videos)
        finally:
            if report.metrics:
                self._on_step(report)

    def _next_prompts(self, index: int) -> list[Prompt]:
        self._batches += 1
        self._taken[index] = self._batches
        return [prompt_of(item) for item in self._stream.batch(self._batches - 1)]

    def _report(self, step: RunStep, handles: Sequence[Handle], now: float, beside: Sequence[RunStep]) -> StepReport:
        """Of a step that ended at `now`, when the steps `beside` were open too."""
        results = [result for handle in handles for result in handle.wait() if isinstance(result, TrainResult)]
        report = StepReport(step.index + 1, batches=self._taken[step.index])
        for result in results:
            report.metrics.update(result.metrics)
            report.samples.extend(result.samples)
            report.tokens += result.tokens
            report.count += result.count
            report.env_steps += result.env_steps
            report.left_out.extend(result.left_out)
            report.lengths.extend(result.lengths)
        report.usage, report.moves, report.chunks = usage_of(handles), moves_of(handles), chunks_of(handles)
        report.metrics.update(self._accounts(step, results))
        report.time = self._time(step, handles, now, beside)
        seconds = report.time.seconds
        report.metrics.update(report.time.metrics())
        report.metrics.update(report.throughput(seconds, len(report.time.devices)))
        report.metrics.update(memory_metrics(handles))
        report.metrics["progress/epoch"] = self._stream.epoch(report.batches)
        return report

    def _accounts(self, step: RunStep, results: Sequence[TrainResult]) -> dict[str, float]:
        """Samples that were asked for, and what is known of those that were given up early."""
        if "environment" in self._groups:
            return {}
        responses = 1 if "examples" in self._groups else self.config.rollout.group_size
        surplus = [result.surplus for result in results if result.surplus is not None]
        found = sum(surplus, Surplus()).metrics() if surplus else {}
        return {"rollout/samples": float(step.fed * responses), **found}

    def _time(self, step: RunStep, handles: Sequence[Handle], now: float, beside: Sequence[RunStep]) -> StepTime:
        """On the devices of all roles."""
        own = [call for handle in handles for call in handle.calls()]
        others = self._calls_of(beside)
        seats = {(group.role, rank): seat.devices for group in self._groups.values() for rank, seat in enumerate(group.seats)}
        devices = {device for devices in seats.values() for device in devices}
        placed, foreign = ([Placed(call, seats[call.role, call.rank]) for call in calls] for calls in (own, others))
        spent = step_time(placed, foreign, devices, step.began, self._ended, now)
        self._ended = spent.ended
        return spent

    def _calls_of(self, steps: Sequence[RunStep]) -> list[Call]:
        """Those that go on, and then those that have answered: what ends in between is in either."""
        if not steps:
            return []
        running = under_way(self._groups.values())
        return [*running, *(call for step in steps for handle in step.handles for call in handle.answered())]


def usage_of(handles: Sequence[Handle]) -> dict[str, list[Usage]]:
    """What calls that have ended have told of their engines, by role."""
    found: dict[str, list[Usage]] = {}
    for handle in handles:
        told = [result.usage for result in handle.wait() if isinstance(result, TrainResult) and result.usage is not None]
        if told:
            found.setdefault(handle.role, []).extend(told)
    return found


def chunks_of(handles: Sequence[Handle]) -> dict[str, int]:
    """Role -> pieces in which its ranks took their items, the most of a rank in each of the calls, which have ended."""
    found: Counter[str] = Counter()
    for handle in handles:
        found[handle.role] += max((result.chunks for result in handle.wait() if isinstance(result, TrainResult)), default=0)
    return dict(+found)


def moves_of(handles: Sequence[Handle]) -> dict[tuple[str, str], float]:
    """(role, kind) -> seconds of its slowest rank, of calls that have ended."""
    found: dict[tuple[str, str], float] = {}
    for handle in handles:
        for switch in itertools.chain.from_iterable(handle.switches()):
            key = handle.role, switch.kind
            found[key] = max(found.get(key, 0.0), switch.seconds)
    return found


def memory_metrics(handles: Sequence[Handle]) -> dict[str, float]:
    """Of calls that have ended: what their processes needed, and what other roles were given room by."""
    peak = max((peak for handle in handles for peak in handle.peak_memory()), default=0)
    offloaded = [switch.size for handle in handles for switches in handle.switches() for switch in switches
                 if switch.kind == "offload"]
    return {"memory/peak_gb": peak / 1e9} | ({"memory/offloaded_gb": sum(offloaded) / 1e9} if offloaded else {})


def prompt_of(item: StreamItem) -> Prompt:
    row = item.row
    return Prompt(item.id, row.text, row.messages, row.answer, row.columns, row.target)


def _await(handles: Sequence[Handle], patience: float) -> None:
    """Until the calls have ended, well or not, or so many seconds are over. A call that begins anew in a process that is
    being started again has nothing left to save."""
    deadline = time.monotonic() + patience
    for handle in handles:
        while not _ended(handle, min(_SLICE_S, deadline - time.monotonic())):
            is_held = not set(handle.ranks) <= set(handle.group.present)
            if is_held or handle.done() or time.monotonic() >= deadline:
                break


def _ended(handle: Handle, patience: float = 0.0) -> bool:
    """Whether the call came to a good end in time. Its error would only repeat why the run was cancelled."""
    deadline = time.monotonic() + patience
    while not handle.done() and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return handle.succeeded()

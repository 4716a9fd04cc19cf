"""From prompts to samples, with a generation engine: what a rollout does between the weights that it got and the samples
that it gives."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.engine import Completion, Engine, Request, Sampling
from rlinf_cli.flow.channel import Lease
from rlinf_cli.flow.errors import ChannelClosedError
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.models.resolve import resolve_model
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.rl.trajectory import IntArray, Prompt, Sample, SampleGroup
from rlinf_cli.workers.engine_share import SLICE_S, EngineShare, Stake, Usage
from rlinf_cli.workers.prompts import PromptEncoder
from rlinf_cli.workers.surplus import Surplus, asked

MANY = 1024
"""Prompts that an evaluation on all rows is taken to have, to share them among replicas."""
PORTIONS, STEPS_A_PORTION = 8, 16
"""A replica takes its share of the prompts in so many portions, one between two decode steps: one that is slow, or at work
already, then gets less. They are fewer where responses are shorter than so many tokens a portion."""
TAKING_S = 0.001
"""The engine is driven so long between two portions (a decode step at least)."""
MEASURED_TOKENS = 64
"""Longest responses that decode steps are measured with."""
_AT_ONCE_S = 1e-6
_SOONEST_S, _LATEST_S = 0.01, 0.5
"""Between two looks into a channel in which there was nothing, while requests are under way."""


@dataclass(frozen=True)
class Task:
    """How prompts of one kind, to train on or to evaluate with, are answered."""

    sampling: Sampling
    responses: int
    """To each prompt."""
    fair: int
    """Prompts that one replica works on at once, when the others want work too."""


class Generator:
    """One engine, one of `replicas` that take prompts from the same channels as they have room."""

    def __init__(self, config: RunConfig, device: str, replicas: int) -> None:
        self.model = resolve_model(config.model.name, config.seed, plugins())
        self.encoder = PromptEncoder(self.model, config.rollout.max_prompt_tokens)
        self.tasks = tasks(config, self.encoder.stops(config.rollout.stop), replicas)
        self.overprovision = config.rollout.overprovision
        self._most_portions = PORTIONS if replicas > 1 and not config.deterministic else 1
        self.lengths = {kind: task.sampling.max_new_tokens / 2 for kind, task in self.tasks.items()}
        """Of the responses to prompts of each kind, a moving mean."""
        extension = config.extension("engine")
        assert extension is not None
        self._longest = config.longest_sequence
        self.engine: Engine = extension.load()(engine_settings(config), self.model, device, self._longest)
        # who shares the prompts with nobody has the next ones ready when responses end
        self.share = EngineShare(self.engine, ahead=self.engine.capacity if replicas == 1 else 0)

    def generate(self, prompts: In[Prompt], samples: Out[SampleGroup]) -> Surplus | None:
        """Answer every prompt, `group_size` times or, for an evaluation, `eval.k` times; a group leaves when its last
        sample is done. Calls from several threads share the engine.

        With `rollout.overprovision`, what is not done once `samples` has enough is dropped and told.
        """
        with self.share.stake() as stake:
            return _Answering(self, stake, prompts, samples).run()

    def measure_decoding(self, prompts: Sequence[Prompt], seconds: float) -> Usage:
        """Decode steps of 1, 2, 4, ... responses at once, up to the engine's capacity, each number once at least and all of them
        again until so many seconds are over. Responses have one length, which only the prompts and the engine bound."""
        ids = [ids for _, ids in self.encoder.encode_all(prompts)]
        capacity, deadline = self.engine.capacity, time.monotonic() + seconds
        rounds = itertools.count()
        self.share.usage()
        while (again := next(rounds)) == 0 or time.monotonic() < deadline:
            for number in doubling(capacity):
                self._decode([Request(f"measured-{again}-{number}/{place}", own, self._measured(len(own)))
                              for place, own in zip(range(number), itertools.cycle(ids))])
        return self.share.usage()

    def _measured(self, prompt: int) -> Sampling:
        return Sampling(min(MEASURED_TOKENS, self._longest - prompt), stop_token_ids=())

    def _decode(self, requests: Sequence[Request]) -> None:
        """Until all of them have ended; the first step, which reads the prompts, by itself."""
        with self.share.stake() as stake:
            self.share.submit(stake, requests)
            left, slice_s = len(requests), _AT_ONCE_S
            while left:
                left -= len(self.share.collect(stake, slice_s))
                slice_s = SLICE_S

    def portion(self, evaluation: bool, open_groups: int) -> int:
        """Prompts that a call with so many open ones may take before the next decode step."""
        fair = self.tasks[evaluation].fair
        portions = max(1, min(self._most_portions, int(self.lengths[evaluation] / STEPS_A_PORTION)))
        return max(1, min(math.ceil(fair / portions), fair - open_groups))

    def learn_length(self, evaluation: bool, length: int) -> None:
        self.lengths[evaluation] += 0.05 * (length - self.lengths[evaluation])


class _Answering:
    """One call. Its prompts are taken to be like the last one: a channel seldom has both kinds."""

    def __init__(self, generator: Generator, stake: Stake, prompts: In[Prompt], samples: Out[SampleGroup]) -> None:
        self._generator, self._share, self._stake = generator, generator.share, stake
        self._prompts, self._samples = prompts, samples
        self._open: dict[str, _Group] = {}
        self._evaluation, self._is_closed, self._is_full = False, False, False
        self._seen, self._due, self._pause = -1.0, 0.0, _SOONEST_S
        self._kept = self._kept_tokens = 0
        self._late: list[_Group] = []
        """Groups that were refused."""

    def run(self) -> Surplus | None:
        while (self._open or not self._is_closed) and not self._has_enough():
            ended: list[Completion] = []
            if self._open:
                taking = self._stake.wants and not self._is_closed
                ended = self._share.collect(self._stake, TAKING_S if taking else SLICE_S)
            if not self._is_closed:
                self._take()  # first: what has ended has left room in the engine
            for completion in ended:
                self._finish(completion)
        return self._surplus() if self._limited else None

    @property
    def _limited(self) -> bool:
        return self._generator.overprovision > 0 and not self._evaluation

    def _has_enough(self) -> bool:
        return self._limited and (self._is_full or self._samples.is_full)

    def _take(self) -> None:
        """Take prompts where there is room; wait for them where there is nothing else to do."""
        task = self._generator.tasks[self._evaluation]
        most = self._generator.portion(self._evaluation, len(self._open))
        if self._is_time() and (count := self._share.room(self._stake, task.responses, most)):
            self._submit(self._lease(count, task.responses))
        elif not self._open:
            self._share.await_room(SLICE_S)

    def _is_time(self) -> bool:
        """Whether there has been a decode step since, and some time after a look in vain."""
        return not self._open or (self._steps() != self._seen and time.monotonic() >= self._due)

    def _steps(self) -> float:
        return self._generator.engine.stats()["steps"]

    def _lease(self, count: int, responses: int) -> list[Lease]:
        self._seen = self._steps()
        try:
            leases: list[Lease] = self._prompts.lease(count, at_least=0)
            self._share.tell(self._stake, wants=len(leases) == count, promised=len(leases) * responses)
            if not leases and not self._open:
                leases = self._prompts.lease(count, at_least=1)
                self._share.tell(self._stake, wants=True, promised=len(leases) * responses)
        except ChannelClosedError:
            self._is_closed = True
            self._share.tell(self._stake, wants=False)
            return []
        self._pause = _SOONEST_S if leases else min(2 * self._pause, _LATEST_S)
        self._due = 0.0 if self._stake.wants else time.monotonic() + self._pause
        return leases

    def _submit(self, leases: list[Lease]) -> None:
        if not leases:
            return
        tasks, encoder = self._generator.tasks, self._generator.encoder
        encoded = encoder.encode_all([lease.item for lease in leases])
        groups = [_Group(lease, *one, tasks[lease.item.evaluation]) for lease, one in zip(leases, encoded, strict=True)]
        self._evaluation = groups[-1].prompt.evaluation
        if any(group.prompt.evaluation for group in groups):
            self._share.begin_evaluation(self._stake)
        self._open.update((group.prompt.id, group) for group in groups)
        self._share.submit(self._stake, [request for group in groups for request in group.requests()])

    def _finish(self, completion: Completion) -> None:
        group = self._open[completion.id.rpartition("/")[0]]
        tokenizer = self._generator.encoder.tokenizer
        group.add(completion, tokenizer.decode(completion.token_ids.tolist(), skip_special_tokens=True))
        self._generator.learn_length(group.prompt.evaluation, len(completion.token_ids))
        if group.complete():
            del self._open[group.prompt.id]
            self._put(group)

    def _put(self, group: _Group) -> None:
        weight = sum(len(sample) for sample in group.samples)
        if not self._limited:
            self._samples.put(group.samples, weight=weight, settles=[group.lease])
            return
        try:
            self._samples.put(group.samples, weight=weight, settles=[group.lease], wait=True)
        except ChannelClosedError:  # enough were there before
            self._is_full = True
            self._late.append(group)
            return
        self._kept += len(group.samples)
        self._kept_tokens += group.tokens

    def _surplus(self) -> Surplus:
        """End what is not done, and give its prompts up."""
        for completion in self._share.withdraw(self._stake):
            self._open[completion.id.rpartition("/")[0]].add(completion, "")
        dropped = [*self._late, *self._open.values()]
        if dropped:
            self._prompts.settle([group.lease for group in dropped])
        lengths = [len(sample.response_ids) for group in dropped for sample in group.samples]
        return Surplus(self._kept, self._kept_tokens, len(lengths), sum(length > 0 for length in lengths), sum(lengths))


class _Group:
    """The samples of one prompt, gathered until all are there: a group is never split."""

    def __init__(self, lease: Lease, text: str, ids: IntArray, task: Task) -> None:
        self.lease, self._text, self._ids, self.task = lease, text, ids, task
        self.prompt: Prompt = lease.item
        self.samples: SampleGroup = []

    @property
    def tokens(self) -> int:
        """Of the responses."""
        return sum(len(sample.response_ids) for sample in self.samples)

    def requests(self) -> list[Request]:
        return [Request(f"{self.prompt.id}/{number:04d}", self._ids, self.task.sampling)
                for number in range(self.task.responses)]

    def add(self, completion: Completion, text: str) -> None:
        self.samples.append(Sample(
            id=completion.id, group_id=self.prompt.id, prompt_ids=self._ids, response_ids=completion.token_ids,
            mask=np.ones(len(completion.token_ids), np.bool_), logprobs=completion.logprobs,
            versions=completion.versions, finish=completion.finish, prompt=self._text, response=text,
            answer=self.prompt.answer, columns=self.prompt.columns))

    def complete(self) -> bool:
        return len(self.samples) == self.task.responses


def doubling(most: int) -> list[int]:
    """1, 2, 4, ... and the most."""
    return [*(2**power for power in range(most.bit_length()) if 2**power < most), most]


def engine_settings(config: RunConfig) -> Any:
    """The keys of the engine. A deterministic run asks one with a key `batch_invariant` for responses that do not depend, to
    the last bit, on what else is generated at the time."""
    settings = config.settings("engine")
    if config.deterministic and hasattr(settings, "batch_invariant"):
        return replace(settings, batch_invariant=True)
    return settings


def tasks(config: RunConfig, stop: tuple[int, ...], world: int) -> dict[bool, Task]:
    """What is to be done with a prompt, by `Prompt.evaluation`, with `world` replicas."""
    rollout, evaluation = config.rollout, config.eval
    training = Sampling(rollout.max_new_tokens, rollout.temperature, rollout.top_k, rollout.top_p, rollout.min_p, stop,
                        config.seed)
    evaluating = Sampling(evaluation.max_new_tokens or rollout.max_new_tokens, evaluation.temperature,
                          stop_token_ids=stop, seed=config.seed)
    return {False: Task(training, rollout.group_size, math.ceil(asked(rollout.prompts, rollout.overprovision) / world)),
            True: Task(evaluating, evaluation.k, math.ceil((evaluation.prompts or MANY) / world))}

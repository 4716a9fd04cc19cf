"""The reward role: scores samples as they come."""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.flow.channel import Lease
from rlinf_cli.flow.errors import ChannelClosedError
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.worker import Worker
from rlinf_cli.rl.trajectory import Sample, SampleGroup
from rlinf_cli.sandbox.child import summary
from rlinf_cli.sandbox.pool import Failure, Pool, Result
from rlinf_cli.state.granularity import Granularity
from rlinf_cli.workers.chunks import leased_chunks
from rlinf_cli.workers.patience import Patience
from rlinf_cli.workers.scoring import Score, combine, is_isolated, is_on_device, labels, scorers

log = logging.getLogger(__name__)

CHUNK = 16
"""Groups taken at once, where so many wait: enough to coalesce messages, few enough to share with other ranks."""

_POLL_S = 0.01
"""Between two looks for more samples while others are being scored."""
_MOST_REPORTS = 20
"""Kinds of errors that are written to the log in full."""


@dataclass(eq=False)
class _Progress:
    """A group of a step, leased, and how many of its samples are not done with."""

    lease: Lease
    patience: Patience
    left: int = 0


class RewardWorker(Worker):
    """Scores every sample; a reward that fails leaves its sample without one, never with a silent zero.

    Parts that can do no harm are called here, all others in processes that are killed when a call takes too long.
    """

    def __init__(self, config: RunConfig, granularity: tuple[int, int] | None = None) -> None:
        """`granularity`: fewest and most groups that are taken at once."""
        self._most = granularity[1] if granularity else CHUNK
        self._granularity = Granularity(granularity[0] if granularity else 1, self._most)
        parts = dict(zip(labels(config.parts("reward")), config.parts("reward")))
        plain = {label: part for label, part in parts.items() if not is_on_device(part)}
        apart = {label: part for label, part in plain.items() if is_isolated(part)}
        here = {label: part for label, part in plain.items() if label not in apart}
        self._parts, self._apart = parts, list(apart)
        self._weights = {label: part.weight for label, part in parts.items()}
        self._here = dict(zip(here, scorers(list(here.values()))))
        self._timeout, self._processes = config.reward.timeout_s, config.reward.processes
        self._reported: set[str] = set()
        self._pool = Pool(partial(scorers, list(apart.values())), self._processes, self._timeout,
                          config.cluster.start_timeout_s, f"reward {config.reward.name}") if apart else None

    def score(self, samples: In[SampleGroup], scored: Out[SampleGroup]) -> None:
        """Put each group when all its samples are done with. RunError when a reward's process cannot be started."""
        leases = self._score_here(samples) if self._pool is None else self._score_apart(samples, self._pool)
        for lease in leases:
            share_out(lease.item)
            scored.put(lease.item, weight=sum(len(sample) for sample in lease.item), settles=[lease])

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def _score_here(self, samples: In[SampleGroup]) -> Iterator[Lease]:
        for leases in leased_chunks(samples, self._granularity):
            self._look_ahead([sample for lease in leases for sample in to_score(lease.item)])
            for lease in leases:
                for sample in to_score(lease.item):
                    given = self._call_here(sample)
                    if given is not None:
                        self._reward(sample, given)
                yield lease

    def _score_apart(self, samples: In[SampleGroup], pool: Pool) -> Iterator[Lease]:
        pool.withdraw(lambda key: True)  # what a step that was broken off had left
        patience, is_open, due = Patience(self._processes), True, 0.0
        while is_open or pool.pending:
            if is_open and not pool.waiting and (not pool.pending or time.monotonic() >= due):
                due = time.monotonic() + _POLL_S
                try:
                    leases = samples.lease(self._most, at_least=0 if pool.pending else 1)
                    self._look_ahead([sample for lease in leases for sample in to_score(lease.item)])
                    for lease in leases:
                        progress = _Progress(lease, patience)
                        self._submit(progress, pool)
                        if not progress.left:
                            yield lease
                except ChannelClosedError:
                    is_open = False
            for result in pool.poll(_POLL_S if is_open else None):
                progress = result.key[0]
                if progress.patience is patience:  # else it was under way then
                    yield from self._settle(result, pool)

    def _look_ahead(self, samples: list[Sample]) -> None:
        """These are the samples whose rewards are asked for next."""

    def _submit(self, progress: _Progress, pool: Pool) -> None:
        for sample in to_score(progress.lease.item):
            given = self._call_here(sample)
            if given is not None and progress.patience.is_spent(sample.group_id):
                self._leave_alone(sample, progress.patience)
            elif given is not None:
                pool.submit((progress, sample, given), sample)
                progress.left += 1

    def _settle(self, result: Result, pool: Pool) -> Iterator[Lease]:
        """The groups that are done with now."""
        progress, sample, given = result.key
        failure, patience = result.failure, progress.patience
        if failure is None:
            self._reward(sample, given | dict(zip(self._apart, result.values)))
        else:
            self._fail(sample, self._apart[failure.function], failure)
        settled = [progress]
        if failure is None or failure.kind == "raised":
            patience.scored(sample.group_id)
        else:
            patience.lost(sample.group_id, sample.error)
            settled += self._leave_alone_if_spent(pool, patience)
        for one in settled:
            one.left -= 1
            if not one.left:
                yield one.lease

    def _leave_alone_if_spent(self, pool: Pool, patience: Patience) -> list[_Progress]:
        """The groups of the samples that are left alone from now on, one entry a sample."""
        given_up = pool.withdraw(lambda key: patience.is_spent(key[1].group_id))
        for _, sample, _ in given_up:
            self._leave_alone(sample, patience)
        if given_up:
            log.warning("%d samples of this step are left alone: %s", len(given_up), given_up[0][1].error)
        return [progress for progress, _, _ in given_up]

    def _leave_alone(self, sample: Sample, patience: Patience) -> None:
        sample.error = f"not scored, since too many before it were lost, the last as {patience.last}"

    def _call_here(self, sample: Sample) -> dict[str, Score] | None:
        """What the parts give that are called here; None when one failed, and the sample with it."""
        label = ""
        given: dict[str, Score] = {}
        try:
            for label, score in self._here.items():
                given[label] = score(sample)
        except Exception as error:  # whatever it raises is counted, shown and survived
            self._fail(sample, label, Failure("raised", 0, summary(error), traceback.format_exc()))
            return None
        return given

    def _reward(self, sample: Sample, given: dict[str, Score]) -> None:
        sample.reward, sample.rewards = combine(self._weights, given)
        if sample.token_rewards is not None:
            earned = float(sample.token_rewards.sum())
            sample.reward, sample.rewards = sample.reward + earned, {**sample.rewards, "turns": earned}

    def _fail(self, sample: Sample, label: str, failure: Failure) -> None:
        sample.error = self._told(self._parts[label].name, failure)
        if len(self._parts) > 1:
            sample.rewards = {label: math.nan}
        if sample.error not in self._reported and len(self._reported) < _MOST_REPORTS:
            self._reported.add(sample.error)
            log.warning("reward %s failed on sample %s: %s\n%s", self._parts[label].name, sample.id, sample.error,
                        failure.detail)

    def _told(self, name: str, failure: Failure) -> str:
        if failure.kind == "timeout":
            return f"TimeoutError: reward {name} took longer than {failure.message} (reward.timeout_s)"
        if failure.kind == "died":
            return f"the process of reward {name} died ({failure.message})"
        return f"{name}: {failure.message}" if len(self._parts) > 1 else failure.message


def to_score(group: SampleGroup) -> SampleGroup:
    """Without those of episodes that have failed: what has an error already is given no reward; and without those that share
    another one's."""
    return [sample for sample in group if not sample.error and not sample.leader]


def share_out(group: SampleGroup) -> None:
    """Give those that share another one's reward what that one got, once it has."""
    by_id = {sample.id: sample for sample in group}
    for sample in group:
        if sample.leader and not sample.error:
            leader = by_id[sample.leader]
            sample.reward, sample.rewards, sample.error = leader.reward, dict(leader.rewards), leader.error

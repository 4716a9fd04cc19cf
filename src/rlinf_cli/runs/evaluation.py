"""An evaluation: which prompts it asks, and what the scored answers say about the policy.

A prompt's id, and with it the noise of its answers, is a function of the row: neither the number of engines nor the
order in which prompts are answered changes a sample.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.data.sources import Source
from rlinf_cli.errors import RunError, UsageError
from rlinf_cli.rl.success import mean_at, mean_interval, pass_at, pass_interval
from rlinf_cli.rl.trajectory import Prompt, Sample, SampleGroup
from rlinf_cli.workflows.base import Workflow

ROUNDING = 1e-9
"""By so much a reward that is a weighted sum may miss `eval.success`."""

_SUFFIXES = re.compile(r"\.(jsonl|ndjson|parquet)$")


@dataclass(frozen=True)
class EvalTask:
    """The first rows of a data set, under the name that its metrics have."""

    name: str
    source: Source
    most: int
    """Rows to take; 0: all."""

    @cached_property
    def prompts(self) -> list[Prompt]:
        """In the order of the rows. Raises UsageError when a row cannot be read."""
        size = self.source.size
        count = self.most if size is None else min(self.most or size, size)
        return [self._prompt(index) for index in range(count)]

    def _prompt(self, index: int) -> Prompt:
        row = self.source.row(index)
        return Prompt(f"eval-{self.name}-{self.source.number(index)}", row.text, row.messages, row.answer, row.columns,
                      evaluation=True)


@dataclass(frozen=True)
class TaskResult:
    """What one task's samples say; prompts in the order of the rows, k samples each."""

    task: str
    k: int
    samples: list[Sample]
    successes: tuple[int, ...]
    """Of each prompt."""

    @property
    def videos(self) -> dict[str, bytes]:
        """There are none."""
        return {}

    @property
    def trials(self) -> int:
        return len(self.samples)

    @property
    def errors(self) -> int:
        """Samples without a reward, which count as no success."""
        return sum(bool(sample.error) for sample in self.samples)

    @property
    def mean_reward(self) -> float:
        rewards = [sample.reward for sample in self.samples if not sample.error]
        return sum(rewards) / len(rewards)

    @property
    def mean_length(self) -> float:
        return sum(len(sample.response_ids) for sample in self.samples) / self.trials

    @property
    def truncated(self) -> float:
        """Share of the responses that were cut at the length limit."""
        return sum(sample.finish == "length" for sample in self.samples) / self.trials

    def metrics(self) -> dict[str, float]:
        values = {
            f"mean@{self.k}": mean_at(self.k, self.successes), f"pass@{self.k}": pass_at(self.k, self.k, self.successes),
            "successes": sum(self.successes), "trials": self.trials, "errors": self.errors, "reward/mean": self.mean_reward,
            "response_len/mean": self.mean_length, "response_len/clip_frac": self.truncated,
        }
        return {f"eval/{self.task}/{name}": float(value) for name, value in values.items()}

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        k, counts = self.k, self.successes
        tries = sorted({j for j in (1, 2, 4, 8, 16, 32, 64, 128) if j < k} | {k})
        return {
            "task": self.task, "prompts": len(counts), "successes": sum(counts), "trials": self.trials,
            "errors": self.errors, f"mean@{k}": mean_at(k, counts), f"mean@{k}_interval": list(mean_interval(k, counts)),
            **{f"pass@{j}": pass_at(j, k, counts) for j in tries}, f"pass@{k}_interval": list(pass_interval(k, counts)),
            "reward": self.mean_reward, "response_len": self.mean_length, "truncated": self.truncated,
        }


@dataclass(frozen=True)
class Recurring:
    """What comes back as often as `eval.every` says, and at the end."""

    config: RunConfig
    workflow: Workflow

    def is_due(self, step: int) -> bool:
        """Whether training evaluates after so many steps."""
        every = self.config.eval.every
        return every > 0 and (step % every == 0 or step == self.config.steps)


@dataclass(frozen=True)
class Evaluation(Recurring):
    """What a run, or a checkpoint, is evaluated on."""

    tasks: tuple[EvalTask, ...]

    def prompts(self) -> list[Prompt]:
        return [prompt for task in self.tasks for prompt in task.prompts]

    def results(self, groups: Iterable[SampleGroup], version: int) -> list[TaskResult]:
        """From all scored answers, in any order. Raises RunError when weights of another version than `version` made a
        token of them, and when a task has no reward at all."""
        answers = {group[0].group_id: sorted(group, key=lambda sample: sample.id) for group in groups}
        _check_version(answers, version)
        return [self._result(task, [answers[prompt.id] for prompt in task.prompts]) for task in self.tasks]

    def _result(self, task: EvalTask, groups: Sequence[SampleGroup]) -> TaskResult:
        least = self.config.eval.success - ROUNDING
        samples = [sample for group in groups for sample in group]
        failed = [sample.error for sample in samples if sample.error]
        if len(failed) == len(samples):
            raise RunError(f"no answer to {task.name} has a reward: all {len(failed)} failed, the first with {failed[0]} (see "
                           "the reward worker's log)")
        return TaskResult(task.name, self.config.eval.k, samples,
                          tuple(sum(sample.reward >= least for sample in group) for group in groups))


def evaluation_on(sources: Sequence[Source], config: RunConfig, workflow: Workflow) -> Evaluation:
    """The evaluation that `eval.*` describes. Raises UsageError for all rows of a data set that has no end."""
    for source in sources:
        if not config.eval.prompts and not source.deferred and source.size is None:
            raise UsageError(f"eval.prompts=0 takes all rows, but {source.name} has no end: say how many")
    names = task_names([source.name for source in sources])
    return Evaluation(config, workflow, tuple(map(EvalTask, names, sources, [config.eval.prompts] * len(names))))


def task_names(data: Sequence[str]) -> list[str]:
    """Names for metrics: the last part of a path or hub name, without the file's ending; numbered where several are the
    same."""
    names: list[str] = []
    for one in data:
        plain = re.sub(r"[^\w.-]+", "-", _SUFFIXES.sub("", one.rstrip("/").rpartition("/")[2]), flags=re.ASCII) or "data"
        number = sum(name == plain or name.startswith(f"{plain}-") for name in names)
        names.append(f"{plain}-{number + 1}" if plain in names else plain)
    return names


def _check_version(answers: Mapping[str, SampleGroup], version: int) -> None:
    found = {int(one) for group in answers.values() for sample in group for one in np.unique(sample.versions)}
    if found - {version}:
        raise RunError(f"the evaluation after step {version} was answered by weights of version "
                       f"{' and '.join(map(str, sorted(found)))}")

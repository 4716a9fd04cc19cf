"""An evaluation in environments: which episodes it goes through, and what they say about the policy.

An episode's start, and the noise of its actions, is a function of its place in the list: neither the number of environments
that are stepped side by side nor who steps them changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.errors import RunError
from rlinf_cli.rl.segment import Episode
from rlinf_cli.rl.success import mean_at, mean_interval, pass_at, pass_interval
from rlinf_cli.rl.trajectory import Prompt
from rlinf_cli.runs.evaluation import Recurring
from rlinf_cli.runs.videos import named
from rlinf_cli.workflows.base import Workflow

if TYPE_CHECKING:
    from rlinf_cli.workers.environments.starts import Numbered


@dataclass(frozen=True)
class EpisodesResult:
    """Of one task: its episodes in the order of their starts, k from each initial state."""

    task: str
    k: int
    episodes: Sequence[Episode]
    success: float
    """Least return of a success, where the simulator does not say."""

    @property
    def samples(self) -> list[Episode]:
        return list(self.episodes)

    @property
    def videos(self) -> dict[str, bytes]:
        """By the name of the file."""
        return named(self.task, self.episodes)

    @property
    def successes(self) -> tuple[int, ...]:
        """Of each initial state."""
        groups: dict[int, int] = {}
        states = len(self.episodes) // self.k
        for place, episode in enumerate(self.episodes):
            groups[place % states] = groups.get(place % states, 0) + self._succeeds(episode)
        return tuple(groups[state] for state in range(states))

    def metrics(self) -> dict[str, float]:
        values = {f"mean@{self.k}": mean_at(self.k, self.successes), "successes": sum(self.successes),
                  "trials": len(self.episodes), "reward/mean": self._mean("returned"), "episode_len/mean": self._mean("length")}
        return {f"eval/{self.task}/{name}": float(value) for name, value in values.items()}

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        k, counts = self.k, self.successes
        several = {f"pass@{k}": pass_at(k, k, counts), f"pass@{k}_interval": list(pass_interval(k, counts))} if k > 1 else {}
        return {"task": self.task, "states": len(counts), "successes": sum(counts), "trials": len(self.episodes),
                f"mean@{k}": mean_at(k, counts), f"mean@{k}_interval": list(mean_interval(k, counts)), **several,
                "reward": self._mean("returned"), "episode_len": self._mean("length"),
                "truncated": fmean(episode.truncated for episode in self.episodes),
                "episodes": [{"seed": one.seed, "state": one.state, "return": one.returned, "length": one.length,
                              "success": self._succeeds(one)} for one in self.episodes]}

    def _succeeds(self, episode: Episode) -> bool:
        return episode.returned >= self.success if episode.success is None else episode.success

    def _mean(self, name: str) -> float:
        return fmean(getattr(episode, name) for episode in self.episodes)


@dataclass(frozen=True)
class EpisodesEvaluation(Recurring):
    """What `rlinf_cli.runs.evaluation.Evaluation` is for prompts. `starts`: of every episode, in order."""

    starts: Sequence[Numbered]

    def prompts(self) -> list[Prompt]:
        """There are none."""
        return []

    def results(self, groups: Iterable[Sequence[Episode]], version: int) -> list[EpisodesResult]:
        """From all episodes, in any order. Raises RunError unless each of the starts is there once."""
        episodes = sorted((episode for group in groups for episode in group), key=lambda one: one.number)
        numbers = [episode.number for episode in episodes]
        if numbers != [start.number for start in self.starts]:
            raise RunError(f"an evaluation of {len(self.starts)} episodes has given {len(numbers)}, numbers {numbers[:8]} ...: "
                           "each start must be there once")
        tasks = dict.fromkeys(start.start.task for start in self.starts)
        return [self._result(task, [one for one in episodes if one.task == task]) for task in tasks]

    def _result(self, task: str, episodes: Sequence[Episode]) -> EpisodesResult:
        states = len({episode.state for episode in episodes if episode.state >= 0})
        k = len(episodes) // states if states else 1
        name = task or self.config.env.name.replace(":", "-").replace("/", "-")
        return EpisodesResult(name, k, episodes, self.config.eval.success)


def episodes_evaluation(config: RunConfig, workflow: Workflow) -> EpisodesEvaluation:
    """The evaluation that `eval.*` describes. Raises as the environment does, also where it is to be drawn and cannot
    be."""
    from rlinf_cli.workers.environments.build import build_environment, check_images
    from rlinf_cli.workers.environments.starts import evaluation_starts

    if config.eval.record:
        check_images(config)
    return EpisodesEvaluation(config, workflow, evaluation_starts(config, build_environment(config)))

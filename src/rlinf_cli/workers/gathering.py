"""What an actor has gathered for a step, in one round of generation or several, and which of it is trained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.algorithm import Algorithm
from rlinf_cli.errors import RunError
from rlinf_cli.rl.statistics import length_metrics, step_metrics, trainable
from rlinf_cli.rl.trajectory import Sample, SampleGroup
from rlinf_cli.workers.batch import taking_part


class StepSamples:
    """The samples of one step: round by round, in each in the order of their ids, so that it does not matter how they
    came."""

    def __init__(self, algorithm: Algorithm, config: RunConfig) -> None:
        self._algorithm, self._rollout, self._longest = algorithm, config.rollout, config.longest_response
        self._rounds: list[list[Sample]] = []
        self._taking: list[Sample] | None = None
        """Those that take part, once somebody has asked."""

    def add(self, groups: Iterable[SampleGroup]) -> None:
        """A round; nothing at all is none."""
        samples = sorted((sample for group in groups for sample in group), key=lambda one: one.id)
        if samples:
            self._rounds.append(samples)
            self._taking = None

    @property
    def all(self) -> list[Sample]:
        return [sample for samples in self._rounds for sample in samples]

    def is_enough(self) -> bool:
        """Whether `rollout.prompts` prompts have samples that take part."""
        return _prompts(self._taking_part()) >= self._rollout.prompts

    def chosen(self) -> list[Sample]:
        """Those to train on: of the first `rollout.prompts` prompts that have samples that take part.

        Raises RunError when no sample has a reward.
        """
        samples = self.all
        if not self._algorithm.supervised and not trainable(samples):
            raise RunError(nothing_to_train(samples))
        return first_groups(self._taking_part(), self._rollout.prompts)

    def metrics(self, version: int) -> dict[str, float]:
        """Metrics of all samples, whether or not they are trained. `version`: that of the policy to be trained."""
        if self._algorithm.supervised:
            return length_metrics(self.all) | self._accounts()
        return step_metrics(self.all, version) | self._accounts() | (self._dynamic() if self._algorithm.rounds > 1 else {})

    def _accounts(self) -> dict[str, float]:
        """What became of every sample that came: it is trained, or dropped for a reason."""
        samples, taking = self.all, self._taking_part()
        rewarded = len(samples) if self._algorithm.supervised else len(trainable(samples))
        chosen = first_groups(taking, self._rollout.prompts)
        trained = sum(bool(sample.mask.any()) for sample in chosen)
        dropped = {"no_reward": len(samples) - rewarded, "no_part": rewarded - len(taking), "surplus": len(taking) - len(chosen),
                   "empty": len(chosen) - trained}
        return {"actor/samples": float(trained)} | {f"actor/dropped/{reason}": float(n) for reason, n in dropped.items() if n}

    def _taking_part(self) -> list[Sample]:
        if self._algorithm.supervised:
            return self.all
        if self._taking is None:
            self._taking = taking_part(trainable(self.all), self._algorithm, self._longest)
        return self._taking

    def _dynamic(self) -> dict[str, float]:
        surplus = _prompts(self._taking_part()) - self._rollout.prompts
        return {"rollout/dynamic/rounds": float(len(self._rounds)),
                "rollout/dynamic/dropped_frac": max(0, surplus) / max(1, _prompts(self.all))}


def first_groups(samples: Sequence[Sample], count: int) -> list[Sample]:
    """The samples of the `count` prompts that come first."""
    groups = set(list(dict.fromkeys(sample.group_id for sample in samples))[:count])
    return [sample for sample in samples if sample.group_id in groups]


def nothing_to_train(samples: Sequence[Sample]) -> str:
    """Why a step has no trainable sample."""
    errors = [sample.error for sample in samples if sample.error]
    if errors:
        return (f"no sample of this step has a reward: {len(errors)} of {len(samples)} failed, "
                f"the first with {errors[0]} (see the reward worker's log)")
    return f"no sample of this step can be trained ({len(samples)} samples came)"


def _prompts(samples: Sequence[Sample]) -> int:
    return len({sample.group_id for sample in samples})

"""The actor role of embodied tasks: trains the policy on segments and publishes its weights."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.policy import PolicyTrainer
from rlinf_cli.contracts.trainer import Ranks
from rlinf_cli.flow.ports import In
from rlinf_cli.flow.worker import on_device
from rlinf_cli.rl.segment import Episode, Segment
from rlinf_cli.workers.algorithm import build_algorithm
from rlinf_cli.workers.dealing import Handout
from rlinf_cli.workers.environments.build import chunk_of, spaces
from rlinf_cli.workers.learner import take_up
from rlinf_cli.workers.policies import build_policy
from rlinf_cli.workers.policy_learner import PolicyLearner
from rlinf_cli.workers.result import TrainResult
from rlinf_cli.workers.trained import TrainedPolicy
from rlinf_cli.workers.transitions import deal_segments

log = logging.getLogger(__name__)


class EmbodiedActorWorker(TrainedPolicy):
    """One data-parallel rank of the policy. Rank 0 gathers a step's segments and deals their transitions out."""

    def __init__(self, config: RunConfig, checkpoint: str | None = None, step: int = 0) -> None:
        trainer = config.extension("trainer")
        assert trainer is not None
        self._trainer: PolicyTrainer = trainer.load().policy(
            config.settings("trainer"), build_policy(config, spaces(config, self.device), self.device), self.device,
            Ranks(self.rank, self.world, self.init_method),
            config.steps * config.algorithm.epochs * config.algorithm.minibatches)
        algorithm = build_algorithm(config)
        if checkpoint is not None:
            take_up(self._trainer, algorithm, Path(checkpoint))
        self._learner = PolicyLearner(algorithm, self._trainer, step)
        self._hold(config, algorithm, self._trainer, self._learner)
        self._chunk = chunk_of(config)
        self._handout = Handout(self, "transitions")

    @on_device
    def train(self, segments: In[Segment]) -> TrainResult:
        """Train one step on the segments of the channel. Raises RunError when the numbers are not finite."""
        if self.rank:
            return self._follow()
        try:
            gathered = [segment for chunk in segments.chunks(64, at_least=1) for segment in chunk]
            version = self._learner.version
            dealt = deal_segments(gathered, self._algorithm, self._config, version, self.world)
            self._handout.send([(portion, dealt.state) for portion in dealt.portions])
        except BaseException:
            self._handout.give_up()
            raise
        told = {} if self._algorithm.supervised else segment_metrics(gathered, version)
        metrics = {**told, **dealt.metrics, **self._learner.train(dealt.portions[0])}
        self._algorithm.state = dealt.state
        for sentence in dealt.left_out:
            log.warning("left out: %s", sentence)
        steps = sum(segment.steps for segment in gathered) * self._chunk
        count = sum(len(segment.environments) for segment in gathered)
        return TrainResult(metrics, count=count, env_steps=steps, lengths=[steps // count] * count,
                           left_out=dealt.left_out)

    def _follow(self) -> TrainResult:
        portion, state = self._handout.receive()
        self._learner.train(portion)
        self._algorithm.state = state
        return TrainResult()


def segment_metrics(segments: Sequence[Segment], version: int) -> dict[str, float]:
    """Of what came of a step, whether or not it is trained. `version`: that of the policy to be trained."""
    ages = np.concatenate([version - segment.versions.reshape(-1) for segment in segments])
    lost = sum(int((segment.lost & segment.terminated).sum()) for segment in segments)
    episodes = [episode for segment in segments for episode in segment.episodes]
    return {"rollout/staleness/mean": float(ages.mean()), "rollout/staleness/max": float(ages.max()),
            "env/reward/mean": float(np.nanmean(np.concatenate([segment.rewards.reshape(-1) for segment in segments]))),
            **({"env/lost": float(lost)} if lost else {}), **episode_metrics(episodes)}


def episode_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Of episodes that ended in a step; nothing where none did."""
    if not episodes:
        return {"env/episodes": 0.0}
    successes = [episode.success for episode in episodes if episode.success is not None]
    returns, lengths = ([getattr(episode, name) for episode in episodes] for name in ("returned", "length"))
    return {"env/episodes": float(len(episodes)), "env/return/mean": float(np.mean(returns)),
            "reward/mean": float(np.mean(returns)),
            "env/return/min": float(np.min(returns)), "env/return/max": float(np.max(returns)),
            "env/episode_len/mean": float(np.mean(lengths)),
            **({"env/success": sum(successes) / len(successes)} if successes else {})}

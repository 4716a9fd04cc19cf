"""`metrics.jsonl`: the numbers of each step, and the names that they have."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rlinf_cli.runs.jsonl import StepLines, finite_or_none, read_lines


@dataclass(frozen=True)
class Metric:
    """A metric's name (`<role>`, `<fn>` stand for any one name), unit and meaning."""

    name: str
    unit: str
    meaning: str

    def matches(self, name: str) -> bool:
        return re.fullmatch(re.sub(r"<\w+>", r"[^/]+", self.name), name) is not None


METRICS = (
    Metric("reward/mean", "reward", "mean over the step's samples that have a reward, trained or not"),
    Metric("reward/std", "reward", "standard deviation over the same"),
    Metric("reward/min", "reward", "lowest"),
    Metric("reward/max", "reward", "highest"),
    Metric("reward/<fn>/mean", "reward", "mean of one named value: of several rewards each, and of rewards that return several"),
    Metric("reward/zero_std_frac", "fraction", "groups whose rewards are all equal: they teach nothing"),
    Metric("reward/errors", "samples", "left out because the reward raised, ran out of time or was not finite"),
    Metric("reward/timeouts", "samples", "those of them whose reward ran out of time"),
    Metric("reward/<fn>/errors", "samples", "left out because of this one of several rewards; absent where there are none"),
    Metric("actor/loss", "nats", "the loss that was minimised"),
    Metric("actor/entropy", "nats", "mean entropy of the policy at the trained tokens"),
    Metric("actor/kl", "nats", "estimated divergence of the policy from the one that made the tokens"),
    Metric("actor/ratio", "", "mean probability ratio of the current to the generating policy"),
    Metric("actor/clip_frac", "fraction", "trained tokens whose ratio was clipped"),
    Metric("actor/clip_low_frac", "fraction", "of these, held by the lower bound: made less likely already"),
    Metric("actor/clip_high_frac", "fraction", "of these, held by the upper bound: made more likely already"),
    Metric("actor/reference_kl", "nats", "estimated divergence of the policy from the reference model, a token (k3)"),
    Metric("actor/response_kl", "nats", "estimated divergence of whole responses from the reference model (k1)"),
    Metric("actor/kl_coef", "", "weight of the divergence from the reference model in the reward; absent where there is none"),
    Metric("actor/stopped_frac", "fraction", "the step's optimiser steps that were left out, since the policy had moved enough "
           "(algorithm.target_kl); absent where none was"),
    Metric("actor/importance/mean", "", "mean weight that makes up for the engine's probabilities, before the cap"),
    Metric("actor/importance/clip_frac", "fraction", "trained tokens whose weight was beyond the cap"),
    Metric("actor/importance/kl", "nats", "estimated divergence of the engine from the trainer, a token (k3)"),
    Metric("actor/overlong_penalty", "reward", "mean punishment for responses near the length limit"),
    Metric("actor/nll", "nats", "supervised: negative log-likelihood of what is learned, a token or a part of an action"),
    Metric("actor/target_prob", "", "supervised: mean probability of the responses' tokens"),
    Metric("actor/grad_norm", "", "norm of the gradient before clipping"),
    Metric("actor/lr", "", "learning rate of the step"),
    Metric("actor/skipped", "", "whether no sample took part, so that nothing was trained (then 1, else absent)"),
    Metric("actor/chunk", "prompts", "mean of what was trained at once while others were generated; absent where the step was "
           "gathered first"),
    Metric("actor/samples", "samples", "samples of the step that were trained"),
    Metric("actor/dropped/<reason>", "samples", "those that were not, though they came: `no_reward`, `no_part` (the algorithm "
           "leaves them out), `surplus` (of more prompts than a step trains), `empty` (no token to train); absent where there "
           "are none"),
    Metric("critic/loss", "", "the critic's loss"),
    Metric("critic/explained_variance", "", "how much of what returns differ by the critic knew before it learned them: 1 all, 0 "
           "nothing, less than 0 worse than a constant"),
    Metric("critic/value/mean", "reward", "mean of the critic's values at the trained tokens"),
    Metric("critic/return/mean", "reward", "mean of the returns that they are to become"),
    Metric("critic/clip_frac", "fraction", "trained tokens whose value had moved too far in the step, and has no gradient"),
    Metric("critic/grad_norm", "", "norm of its gradient before clipping"),
    Metric("critic/lr", "", "its learning rate of the step"),
    Metric("env/success", "fraction", "episodes that ended in the step and had solved their task at any time, where the "
           "simulator says"),
    Metric("env/episodes", "episodes", "episodes that ended in the step"),
    Metric("env/return/mean", "reward", "mean sum of rewards of the episodes that ended; `reward/mean` is the same"),
    Metric("env/return/min", "reward", "lowest"),
    Metric("env/return/max", "reward", "highest"),
    Metric("env/episode_len/mean", "steps", "mean length of these episodes"),
    Metric("env/reward/mean", "reward", "mean reward of an action, of all that were taken in the step"),
    Metric("env/lost", "episodes", "episodes that were lost with the process of their simulator; absent where there are none"),
    Metric("env/left_out", "steps", "actions that are not trained: of lost episodes, and of those with a reward that is no "
           "number"),
    Metric("agent/episodes", "episodes", "episodes of agents that ended in the step"),
    Metric("agent/turns/mean", "turns", "mean number of times that the policy spoke in one"),
    Metric("agent/cut_frac", "fraction", "episodes that ended for want of room (`agent.max_tokens`) or "
           "turns (`agent.max_turns`)"),
    Metric("agent/failed", "episodes", "episodes that were given up, because of a tool or an error of the agent, and not "
           "trained"),
    Metric("agent/moved", "", "times that an episode went on with another replica than the one that had read it so far"),
    Metric("tool/<function>/calls", "calls", "calls of a tool's function in the step, answered from memory or not"),
    Metric("tool/<function>/cached", "calls", "those that were answered from memory (`tools.cache`)"),
    Metric("tool/<function>/mistakes", "calls", "those that the policy got wrong"),
    Metric("tool/<function>/retries", "calls", "times that one was tried again after a failure"),
    Metric("tool/<function>/failures", "calls", "those that failed for good"),
    Metric("tool/<function>/mean_s", "s", "mean time in which the tool answered"),
    Metric("rollout/samples", "samples", "samples that were asked for in the step: prompts times responses to each"),
    Metric("rollout/response_len/mean", "tokens", "mean length of the responses"),
    Metric("rollout/response_len/max", "tokens", "longest response"),
    Metric("rollout/response_len/clip_frac", "fraction", "responses that were cut at the length limit"),
    Metric("rollout/prompt_len/mean", "tokens", "mean length of the prompts"),
    Metric("rollout/left_out", "samples", "examples of supervised training that are longer than rollout.max_new_tokens"),
    Metric("rollout/dynamic/rounds", "", "times that the step generated until enough prompts took part (dynamic sampling)"),
    Metric("rollout/dynamic/dropped_frac", "fraction", "prompts that would take part, but were more than the step trains"),
    Metric("rollout/overprovision/dropped", "samples", "responses that were dropped, since enough others were there before "
           "(rollout.overprovision)"),
    Metric("rollout/overprovision/dropped_frac", "fraction", "of all responses that were asked"),
    Metric("rollout/overprovision/length_bias", "tokens", "mean length of the responses that were kept, less that of all; "
           "dropped ones count with what they had, so that the true value is lower"),
    Metric("rollout/aborted", "samples", "responses that were ended before they were finished"),
    Metric("rollout/staleness/mean", "versions", "mean age of the trained tokens' policy when they were trained"),
    Metric("rollout/staleness/max", "versions", "age of the oldest trained token's policy"),
    Metric("rollout/logp_diff/mean", "nats", "mean distance of log p(trainer) from log p(engine) at trained tokens"),
    Metric("rollout/logp_diff/max", "nats", "largest distance of log p(trainer) from log p(engine)"),
    Metric("timing/step_s", "s", "wall time of the step, since the end of the one before where steps overlap: the sum of all "
           "its parts below, each a mean over the devices"),
    Metric("timing/eval_s", "s", "wall time of the evaluation after the step, which is no part of `timing/step_s`"),
    Metric("timing/sync_s", "s", "nothing computed, and weights were on their way from the actor to the rollout"),
    Metric("timing/onload_s", "s", "moving a role's state to its device"),
    Metric("timing/offload_s", "s", "moving a role's state off its device"),
    Metric("timing/wait_data_s", "s", "nothing computed, and a role waited for input from another one"),
    Metric("timing/wait_space_s", "s", "nothing computed, and a role waited for another one to take its output"),
    Metric("timing/wait_lock_s", "s", "nothing computed, and a role waited for a device that another one holds"),
    Metric("timing/idle_s", "s", "no call of any role under way on the device"),
    Metric("timing/<role>_s", "s", "the role computed on the device; roles that do so at once share the time"),
    Metric("plan/predicted_s", "s", "what the step was predicted to take, where the placement was found by measuring"),
    Metric("plan/error_frac", "fraction", "by how much longer it took, as a share of that"),
    Metric("throughput/tokens_per_s", "1/s", "prompt and response tokens over the wall time of the step"),
    Metric("throughput/tokens_per_device_per_s", "1/s", "the same for each device"),
    Metric("throughput/samples_per_s", "1/s", "responses over the wall time of the step"),
    Metric("throughput/env_steps_per_s", "1/s", "steps of environments over the wall time of the step, training included"),
    Metric("memory/peak_gb", "GB", "highest main memory that a process of any role has needed so far"),
    Metric("memory/offloaded_gb", "GB", "what roles moved off their devices in the step, to make room for others; absent where "
           "nothing was"),
    Metric("eval/<task>/mean@<k>", "fraction", "responses that succeed, of all k to each prompt"),
    Metric("eval/<task>/pass@<k>", "fraction", "prompts with at least one success among k responses"),
    Metric("eval/<task>/successes", "samples", "responses whose reward is at least `eval.success`"),
    Metric("eval/<task>/trials", "samples", "responses in all"),
    Metric("eval/<task>/errors", "samples", "responses without a reward, which count as no success"),
    Metric("eval/<task>/reward/mean", "reward", "mean over the responses that have one"),
    Metric("eval/<task>/response_len/mean", "tokens", "mean length of the responses"),
    Metric("eval/<task>/response_len/clip_frac", "fraction", "responses that were cut at the length limit"),
    Metric("eval/<task>/episode_len/mean", "steps", "with an environment: mean length of the episodes"),
    Metric("progress/tokens", "tokens", "prompt and response tokens since the start of the run, resumes included"),
    Metric("progress/samples", "samples", "responses since the start of the run, resumes included"),
    Metric("progress/env_steps", "steps", "steps of environments since the start of the run, resumes included"),
    Metric("progress/epoch", "epochs", "passes over the data"),
    Metric("progress/restarts", "", "processes and roles that were started again after a death, since the start of the run; "
           "absent while there was none"),
)
"""Every metric of the built-in parts; the table in docs/runs.md lists the same. Plugins may add names of their own."""

_NAME = re.compile(r"[a-z][a-z0-9_]*(/[A-Za-z0-9_.@:-]+)+")


def describe(name: str) -> Metric | None:
    """What is known of a metric; None for a plugin's own."""
    return next((metric for metric in METRICS if metric.matches(name)), None)


class MetricsWriter:
    """Appends one line a step: `{"step": 3, "time": 1796000000.123, "reward/mean": 0.5, ...}`.

    `after` is the last step that counts (0 for a new run): lines of later steps, and a torn one, are cut off, so that a
    resumed run's steps follow each other. `time` is in seconds since 1970.
    """

    def __init__(self, path: Path, after: int) -> None:
        self._lines = StepLines(path, after)

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append a step's metrics; NaN and infinity become null.

        Raises ValueError when a name is not of the form `group/name`, or a step comes before the last one written;
        RunError when the disk refuses.
        """
        wrong = [name for name in metrics if not _NAME.fullmatch(name)]
        if wrong:
            raise ValueError(f"metric name {wrong[0]!r} is not of the form group/name, e.g. actor/loss "
                             "(group: small letters, digits, _)")
        values = {name: finite_or_none(value) for name, value in metrics.items()}
        self._lines.write(step, [{"time": round(time.time(), 3), **values}])

    def close(self) -> None:
        self._lines.close()


def read_metrics(path: Path) -> list[dict[str, float]]:
    """A run's lines, oldest first, with `step` and `time`; null is NaN again. [] when there is no file yet.

    Raises UsageError naming a damaged line; a torn last one is left out.
    """
    return [{name: float("nan") if value is None else value for name, value in line.items()}
            for line in read_lines(path)]

"""Whole training runs in one process, without Ray: the real workers with lists for channels. `python harness.py` reads
jobs from stdin, a JSON list of KEY=VALUE a line, and answers each with a line of JSON: the reward of each step and the
divergence from the reference, or, of a supervised run, the share of right answers at its end."""

import json
import statistics
import sys

import torch

from rlinf_cli.config.load import resolve
from rlinf_cli.contracts.trainer import Ranks
from rlinf_cli.flow.channel import Lease
from rlinf_cli.flow.errors import ChannelClosedError
from rlinf_cli.models.resolve import resolve_model
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.rl.trajectory import Prompt
from rlinf_cli.runs.flow import prompt_of
from rlinf_cli.runs.preflight import prepare
from rlinf_cli.workers.algorithm import build_algorithm
from rlinf_cli.workers.batch import deal
from rlinf_cli.workers.critic import CriticWorker
from rlinf_cli.workers.examples import ExamplesWorker
from rlinf_cli.workers.gathering import StepSamples
from rlinf_cli.workers.generation import Generator
from rlinf_cli.workers.learner import Learner
from rlinf_cli.workers.reference import ReferenceWorker
from rlinf_cli.workers.scoring import is_on_device

ENOUGH, LAST = 0.9, 5
"""A run ends when the mean reward of so many last steps is more than this."""
EVALUATED = 256


class Queue:
    """A channel that nothing is put into while it is read."""

    def __init__(self, items=()):
        self.items = list(items)

    def lease(self, n, at_least=1):
        if not self.items:
            raise ChannelClosedError("empty")
        taken, self.items = self.items[:n], self.items[n:]
        return [Lease(item, "", 0) for item in taken]

    def leases(self, n, at_least=None):
        while self.items:
            yield self.lease(n)

    def chunks(self, n, at_least=1):
        taken, self.items = self.items, []
        return [taken]

    def put(self, item, weight, settles=()):
        self.items.append(item)

    def flush(self):
        pass

    def settle(self, leases):
        pass


def worker(kind, config):
    made = kind.__new__(kind)
    made.role, made.rank, made.world, made.device, made.init_method = kind.__name__, 0, 1, "cpu", ""
    made.__init__(config)
    return made


class Run:
    """The workflow's roles in one process."""

    def __init__(self, arguments):
        plugins = load_plugins(None)
        # what is generated beside what decides last bits, and those which path a run takes: it is to be that of the seed alone
        given = ["cluster.devices=cpu:1", "deterministic=true", *arguments]
        prepared = prepare(resolve([], given, {}, plugins), plugins)
        self.config, self._stream, self._batches = prepared.config, prepared.stream, 0
        self.algorithm = build_algorithm(self.config)
        self._trainer = self.config.extension("trainer").load()(
            self.config.settings("trainer"), resolve_model(self.config.model.name, self.config.seed, plugins), "cpu", Ranks(),
            self.config.steps * self.config.algorithm.epochs * self.config.algorithm.minibatches)
        self.learner = Learner(self.config, self.algorithm, self._trainer)
        self._rollout = Generator(self.config, "cpu", 1)
        (part,) = self.config.parts("reward")
        self._reward = part.extension.load()(part.settings, *(["cpu"] if is_on_device(part) else []))
        self._reference = worker(ReferenceWorker, self.config) if self.algorithm.needs_reference else None
        self._critic = worker(CriticWorker, self.config) if self.algorithm.needs_critic else None
        self._kept = Queue()
        self._examples = worker(ExamplesWorker, self.config) if self.algorithm.supervised else None

    def step(self):
        """One step of training; its metrics."""
        samples = StepSamples(self.algorithm, self.config)
        for _ in range(self.algorithm.rounds):
            samples.add(self._groups())
            if samples.is_enough():
                break
        dealt = deal(samples.chosen(), self.algorithm, self.config, self.learner.version, 1)
        metrics = samples.metrics(self.learner.version)
        valued = self._critic.train(self._kept).metrics if self._critic is not None else {}
        trained = {**metrics, **dealt.metrics, **self.learner.train(dealt.parts[0]), **valued}
        self.algorithm.state = dealt.state
        return trained

    def accuracy(self):
        """Mean reward of the likeliest responses to rows that were not trained."""
        (source,) = self._stream.sources
        prompts = [prompt_of_row(source.row(10**6 + n), n) for n in range(EVALUATED)]
        self._publish()
        return statistics.mean(sample.reward for group in self._scored(prompts) for sample in group)

    def _groups(self):
        prompts = [prompt_of(item) for item in self._stream.batch(self._batches)]
        self._batches += 1
        if self._examples is not None:
            out = Queue()
            self._examples.tokenise(Queue(prompts), out)
            return out.items
        self._publish()
        return self._scored(prompts)

    def _publish(self):
        if self._rollout.engine.version < self.learner.version:
            self._rollout.engine.update_weights(self.learner.version, self._trainer.named_weights())

    def _scored(self, prompts):
        scored, referenced = Queue(), Queue()
        self._rollout.generate(Queue(prompts), scored)
        self._reward_all([sample for group in scored.items for sample in group])
        if prompts[0].evaluation:
            return scored.items
        if self._reference is not None:
            self._reference.score(scored, referenced)
            scored = referenced
        if self._critic is not None:
            valued = Queue()
            self._critic.estimate(scored, valued, self._kept)
            scored = valued
        return scored.items

    def _reward_all(self, samples):
        if hasattr(self._reward, "score_batch"):
            for sample, score in zip(samples, self._reward.score_batch(samples), strict=True):
                sample.reward = score
            return
        for sample in samples:
            sample.rewards = dict(self._reward.score(sample))
            sample.reward = sample.rewards.pop("reward")


def prompt_of_row(row, number):
    return Prompt(f"eval-{number}", row.text, row.messages, row.answer, row.columns, row.target, evaluation=True)


def train(arguments):
    run, rewards, divergences, last = Run(arguments), [], [], {}
    is_right_or_wrong = run.config.reward.name == "exact"
    for _ in range(run.config.steps):
        last = run.step()
        rewards.append(last.get("reward/mean", 0.0))
        divergences.append(last.get("actor/response_kl", 0.0))
        if is_right_or_wrong and len(rewards) >= LAST and statistics.mean(rewards[-LAST:]) > ENOUGH:
            break
    accuracy = run.accuracy() if run.algorithm.supervised else None
    return {"rewards": rewards, "divergences": divergences, "accuracy": accuracy, "metrics": last}


def main():
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(train(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()

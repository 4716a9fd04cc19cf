"""What breaks a contract is found, and told in a sentence. Each case is a good implementation with one thing wrong."""

import math
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch

from rlinf_cli.api import Reasoning, Role, Row, UsageError, stored_weights
from rlinf_cli.plugins.testing import (
    check_algorithm,
    check_dataset,
    check_engine,
    check_logger,
    check_model,
    check_reward,
    check_trainer,
    check_workflow,
    make_model,
    make_samples,
)
from rlinf_grpo.algorithm import GRPO
from rlinf_grpo.config import GRPOConfig
from rlinf_models.tiny import TinyModel
from rlinf_ppo.algorithm import PPO
from rlinf_ppo.config import PPOConfig
from rlinf_tasks.config import DigitsConfig
from rlinf_tasks.digits import Digits
from rlinf_torch.engine import TorchEngine
from rlinf_torch.engine_config import TorchEngineConfig
from rlinf_torch.trainer import TorchTrainer
from rlinf_torch.trainer_config import TorchTrainerConfig


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def violations(check, *args, **kwargs):
    """The sentences, as one text; empty when there are none."""
    try:
        check(*args, **kwargs)
    except AssertionError as found:
        return str(found)
    return ""


class Algorithms:
    class WrongSign(GRPO):
        def loss(self, inputs):
            loss, metrics = super().loss(inputs)
            return -loss, metrics

    class MeanOfAMicroBatch(GRPO):
        def loss(self, inputs):
            return -(inputs.advantages * inputs.logprobs).mean(), {}

    class NotZeroForEqualRewards(GRPO):
        def advantages(self, returns):
            return returns.rewards - returns.rewards.mean() + 1e-6, {}

    class AnyDirection(GRPO):
        def loss(self, inputs):
            loss, metrics = super().loss(inputs)
            return loss + (inputs.weights * inputs.logprobs).sum(), metrics

    class Transposed(GRPO):
        def advantages(self, returns):
            return returns.rewards[None], {}

    class Doubles(GRPO):
        def advantages(self, returns):
            return returns.rewards.double() - returns.rewards.double().mean(), {}

    class InPlace(GRPO):
        def advantages(self, returns):
            returns.rewards.sub_(returns.rewards.mean())
            return returns.rewards.clone(), {}

    class Infinite(GRPO):
        def advantages(self, returns):
            return (returns.rewards - returns.rewards.mean()) / 0.0, {}

    class MetricsOfTensors(GRPO):
        def advantages(self, returns):
            return super().advantages(returns)[0], {"actor/baseline": returns.rewards.mean()}

    class MetricWithoutGroup(GRPO):
        def loss(self, inputs):
            return super().loss(inputs)[0], {"kl": torch.zeros(())}

    class MetricIsAMean(GRPO):
        def loss(self, inputs):
            return super().loss(inputs)[0], {"actor/logp": inputs.logprobs.detach().mean()}

    class ComparesWithAll(GRPO):
        def advantages(self, returns):
            return (returns.rewards.double() - returns.rewards.double().mean()).float(), {}

    class DropsTheWorst(GRPO):
        def takes_part(self, returns):
            return returns.rewards > returns.rewards.min()

    class VectorLoss(GRPO):
        def loss(self, inputs):
            return inputs.weights * inputs.logprobs, {}

    class NoGradient(GRPO):
        def loss(self, inputs):
            return super().loss(inputs)[0].detach(), {}

    class Aggregates(GRPO):
        def __init__(self, config):
            super().__init__(config)
            self.aggregation = "mean"

    class ChoosesIndices(GRPO):
        def takes_part(self, returns):
            return torch.arange(len(returns.rewards))

    class Raises(GRPO):
        def loss(self, inputs):
            raise KeyError("beta")


ALGORITHMS = {
    "WrongSign": "more likely: here it does the opposite (is the sign right?)",
    "MeanOfAMicroBatch": "the loss depends on how samples are split into micro-batches",
    "NotZeroForEqualRewards": "advantages must be exactly 0 where all rewards are equal",
    "AnyDirection": "the loss has a gradient where all advantages are 0",
    "Transposed": "advantages must be float32 [B] or [N], here [16] or [",
    "Doubles": "advantages must be float32, not torch.float64 [16]",
    "InPlace": "advantages() changes what it is given",
    "Infinite": "advantages are not finite for finite rewards",
    "MetricsOfTensors": "the metrics of advantages() must be floats",
    "MetricWithoutGroup": "names a metric 'kl', which is not of the form group/name",
    "MetricIsAMean": "the metric actor/logp depends on how samples are split",
    "ComparesWithAll": "per_group is set, but advantages() gives a group something else when it comes alone",
    "DropsTheWorst": "per_group is set, but takes_part() gives a group something else when it comes alone",
    "VectorLoss": "the loss must be a scalar tensor; it is torch.float32 [21]",
    "NoGradient": "the loss has no gradient",
    "Aggregates": "aggregation is 'mean', which is none of token-mean",
    "ChoosesIndices": "takes_part must give bool [B], here [16]; it gave torch.int64 [16]",
    "Raises": "it raised KeyError: 'beta', where it was checked whether it gives a loss",
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithm(name):
    assert ALGORITHMS[name] in violations(check_algorithm, getattr(Algorithms, name), GRPOConfig())


class Critics:
    class Away(PPO):
        def value_loss(self, inputs):
            loss, metrics = super().value_loss(inputs)
            return -loss, metrics

    class MeanOfAMicroBatch(PPO):
        def value_loss(self, inputs):
            return (inputs.values - inputs.targets).square().mean(), {}

    class OfSamples(PPO):
        def value_targets(self, returns):
            found, metrics = super().value_targets(returns)
            return replace(found, targets=returns.rewards), metrics

    class OtherUnits(PPO):
        def values(self, outputs):
            return 2 * super().values(outputs)

    class Remembers(PPO):
        def next_state(self, returns):
            self.state = super().next_state(returns)
            return self.state


CRITICS = {
    "Away": "a step down the gradient of value_loss() must bring values nearer to their targets",
    "MeanOfAMicroBatch": "the value loss depends on how samples are split into micro-batches",
    "OfSamples": "value_targets() must give finite targets, float32 [N], here [",
    "OtherUnits": "values() must bring the outputs that value_targets() gives back",
    "Remembers": "value_targets() and next_state() must leave state alone",
}


@pytest.mark.parametrize("name", CRITICS)
def test_algorithm_with_a_critic(name):
    assert CRITICS[name] in violations(check_algorithm, getattr(Critics, name), PPOConfig())


def test_an_algorithm_must_inherit():
    found = violations(check_algorithm, lambda config: SimpleNamespace(supervised=True), None)
    assert "must inherit from rlinf_cli.api.Algorithm" in found


class FaultyEngine(TorchEngine):
    """Several things wrong at once: each is told."""

    def submit(self, requests):
        super().submit([request for request in requests if len(request.prompt_ids)])

    def collect(self, timeout=None):
        done = super().collect(timeout)
        for one in done:
            one.logprobs[:] = one.logprobs - 1e-3
        return done

    def weights_checksum(self):
        return "0" * 32

    def stats(self):
        return {"tokens": 1.0}


def test_engine():
    found = violations(check_engine, FaultyEngine, TorchEngineConfig())
    for sentence in ("submit() must raise ValueError for an empty prompt",
                     "with temperature 0 logprobs are those of temperature 1; response 0-0/0000 is 0.001 nats off",
                     "logprobs with temperature 1.0 must be log_softmax(logits / temperature)",
                     "with top_k=3 tokens and logprobs must be of what is left",
                     "weights_checksum() must be rlinf_cli.api.weights_checksum of the tensors",
                     "stats() lacks steps, prefill_tokens, slots_used"):
        assert sentence in found


class NoisyEngine(TorchEngine):
    """Its noise depends on what was asked before; it forgets weights, versions and aborts."""

    asked = 0

    def submit(self, requests):
        NoisyEngine.asked += 1
        renamed = [request if request.sampling.temperature == 0 else type(request)(
            request.id, request.prompt_ids, type(request.sampling)(**{
                **{name: getattr(request.sampling, name) for name in type(request.sampling).__slots__},
                "seed": request.sampling.seed + NoisyEngine.asked})) for request in requests]
        super().submit(renamed)

    def update_weights(self, version, tensors, adapter=None, recompute=False):
        self.version = version

    def pause(self):
        pass


def test_engine_with_a_memory():
    found = violations(check_engine, NoisyEngine, TorchEngineConfig())
    for sentence in ("its noise must be a function of (seed, id, position) and nothing else",
                     "weights_checksum() must be rlinf_cli.api.weights_checksum",
                     "update_weights() must raise ValueError for a missing tensor",
                     "a paused engine must not finish anything"):
        assert sentence in found


class StubbornEngine(TorchEngine):
    """Does not stop, cannot abort, tags nothing with new versions, and takes an adapter for half of what it is."""

    def submit(self, requests):
        super().submit([replace(request, sampling=replace(request.sampling, stop_token_ids=())) for request in requests])

    def abort(self, ids=None):
        super().abort(ids if ids is None else [])

    def collect(self, timeout=None):
        return [replace(one, versions=one.versions * 0) for one in super().collect(timeout)]

    def update_weights(self, version, tensors, adapter=None, recompute=False):
        super().update_weights(version, tensors, adapter and replace(adapter, scale=adapter.scale / 2))


def test_engine_that_is_stubborn():
    found = violations(check_engine, StubbornEngine, TorchEngineConfig())
    for sentence in ("a response must end with its first stop token, that token included, and finish 'stop'",
                     "tokens made under version 1 carry [0]", "be those of the weights that made each token",
                     "with an adapter W must act as W + scale * B @ A"):
        assert sentence in found


class MixedUpEngine(TorchEngine):
    """Aborts everybody, takes what does not fit for new weights, and reports more tokens than it has probabilities of."""

    takes_adapters = False

    def abort(self, ids=None):
        super().abort()

    def update_weights(self, version, tensors, adapter=None, recompute=False):
        given = dict(tensors)
        own = {name: given.get(name, tensor) for name, tensor in self._held.named()}
        super().update_weights(version, own.items() if len(given) != len(own) else given.items(), adapter)

    def collect(self, timeout=None):
        return [replace(one, logprobs=one.logprobs[1:]) if one.id == "0-4/0000" else one for one in super().collect(timeout)]


def test_engine_that_mixes_up():
    found = violations(check_engine, MixedUpEngine, TorchEngineConfig(slots=4))
    for sentence in ("abort() of one request changes the others", "update_weights() must raise ValueError for a missing tensor",
                     "logprobs must have one entry a token: 11 for 12 tokens"):
        assert sentence in found


class ForgetfulEngine(TorchEngine):
    """Goes on with what the old weights have read, loses its weights when it gives memory back, and every request whose
    thread has gone."""

    threads: ClassVar[dict[str, int]] = {}

    def update_weights(self, version, tensors, adapter=None, recompute=False):
        super().update_weights(version, tensors, adapter)

    def release_memory(self):
        super().release_memory()
        for _, tensor in self._held.named():
            tensor.zero_()

    def resume_memory(self):
        return 8

    def submit(self, requests):
        self.threads.update((request.id, threading.get_ident()) for request in requests)
        super().submit(requests)

    def collect(self, timeout=None):
        return [one for one in super().collect(timeout) if self.threads[one.id] == threading.get_ident()]


def test_engine_that_forgets():
    found = violations(check_engine, ForgetfulEngine, TorchEngineConfig())
    for sentence in ("after update_weights(recompute=True) tokens must be drawn as if the new weights had read all",
                     "release_memory() must return the bytes, an int of 0 or more, not None",
                     "requests that one thread submits must be collected"):
        assert sentence in found


class LossyEngine(TorchEngine):
    def release_memory(self):
        freed = super().release_memory()
        for _, tensor in self._held.named():
            tensor.zero_()
        return freed

    def resume_memory(self):
        return super().resume_memory() + 8


def test_engine_that_loses_its_weights():
    found = violations(check_engine, LossyEngine, TorchEngineConfig())
    assert "after release_memory() and resume_memory() it says something else" in found


class FaultyTrainer(TorchTrainer):
    """Pads wrongly, forgets its optimiser, and saves a pickle."""

    def log_probs(self, samples, temperature):
        return [found * (1 + 0.01 * len(samples)) for found in super().log_probs(samples, temperature)]

    def train_step(self, items, loss, temperature, needs_entropy=False):
        metrics = super().train_step(items[:-1], loss, temperature)
        return {**metrics, "actor/loss": metrics["actor/loss"] / 2}

    def named_weights(self):
        return ((f"module.{name}", tensor) for name, tensor in super().named_weights())

    def save(self, directory):
        super().save(directory)
        torch.save({}, directory / "optimizer.pt")

    def offload(self):
        for _, tensor in super().named_weights():
            tensor.zero_()


def test_trainer():
    found = violations(check_trainer, FaultyTrainer, TorchTrainerConfig(lr=1e-3))
    for sentence in ("differs from transformers by", "the loss must see each trained token once: ",
                     "actor/loss of an on-policy step is",
                     "named_weights() must have transformers' names", "save() wrote optimizer.pt",
                     "offload() must give the bytes that it freed; it gave None"):
        assert sentence in found


class PiecemealTrainer(TorchTrainer):
    """Knows no scale, never gives up, and loses its optimiser's state on the way."""

    def finish(self, scale):
        return super().finish(1.0)

    def discard(self):
        pass

    def offload(self):
        for tensor in self._require_optimiser().state().values():
            tensor.zero_()
        return 0


def test_trainer_that_takes_items_in_pieces():
    found = violations(check_trainer, PiecemealTrainer, TorchTrainerConfig(lr=1e-3))
    for sentence in ("when items come in several calls of accumulate() and finish(scale)",
                     "something of what discard(), or a loss that raised, should have made forgotten is left",
                     "offload() and onload() change what is trained after them"):
        assert sentence in found


class ForgetfulTrainer(TorchTrainer):
    """Takes up weights but not AdamW's moments; steps on numbers that are not finite; depends on the order of items."""

    def load(self, directory):
        super().load(directory)
        self._require_optimiser().restore({}, 0)

    def _require_finite(self, loss, norm):
        pass

    def train_step(self, items, loss, temperature, needs_entropy=False):
        backwards = items[0].sample.id.startswith("0-3")
        return super().train_step(items[:6] if backwards else items, loss, temperature, needs_entropy)


def test_trainer_that_forgets():
    found = violations(check_trainer, ForgetfulTrainer, TorchTrainerConfig(lr=1e-3))
    for sentence in ("a step after load() differs from the same step without it", "train_step() must raise FloatingPointError",
                     "the weights after two steps depend on the order of the items"):
        assert sentence in found


class HalfTrainer(TorchTrainer):
    """Scores at temperature 1, takes up whatever fits, and keeps its weights in half precision."""

    def log_probs(self, samples, temperature):
        return super().log_probs(samples, 1.0)

    def load(self, directory):
        for name, tensor in stored_weights(directory / "model"):
            mine = dict(self.named_weights())[name]
            if mine.shape == tensor.shape:
                mine.copy_(tensor)

    def named_weights(self):
        return ((name, tensor.bfloat16() if name == "lm_head.weight" else tensor) for name, tensor in super().named_weights())

    def _require_finite(self, loss, norm):
        if not math.isfinite(loss):
            next(super().named_weights())[1].zero_()
        super()._require_finite(loss, norm)


def test_trainer_that_does_things_by_halves():
    found = violations(check_trainer, HalfTrainer, TorchTrainerConfig(lr=1e-3))
    for sentence in ("log_probs() with temperature 0.8 differs from transformers by",
                     "lm_head.weight of named_weights() is not what the model directory has",
                     "after a loss that is not finite the weights must be what they were",
                     "load() must raise ValueError for the checkpoint of a model of another shape",
                     "built with total_steps=0, log_probs() is"):
        assert sentence in found


def test_trainer_that_does_not_learn():
    class Still(TorchTrainer):
        def train_step(self, items, loss, temperature, needs_entropy=False):
            before = {name: tensor.clone() for name, tensor in self.named_weights()}
            metrics = super().train_step(items, loss, temperature, needs_entropy)
            for name, tensor in self.named_weights():
                tensor.copy_(before[name])
            return metrics

    found = violations(check_trainer, Still, TorchTrainerConfig(lr=1e-3))
    assert "train_step() changed no weight" in found
    assert "must lower the loss" in found


class Rewards:
    def Nan(sample): return math.nan
    def Nothing(sample): return None
    def Text(sample): return "good"
    def WithoutReward(sample): return {"right": 1.0}
    def BadName(sample): return {"reward": 1.0, "a b": 1.0}

    def Changes(sample):
        sample.columns = {}
        return 1.0

    def Exits(sample): raise SystemExit(3)

    def Raises(sample): raise LookupError("no model")

    def Draws(sample): return float(np.random.default_rng().random())


REWARDS = {
    "Nan": "score() gave reward=nan: raise an exception where there is no reward",
    "Nothing": "score() must give numbers; reward is None",
    "Text": "score() must give numbers; reward is a str",
    "WithoutReward": "score() gave ['right'] without 'reward'",
    "BadName": "score() names a value 'a b'",
    "Changes": "score() changes its sample (0-0/0000)",
    "Raises": "it raised on all 12 samples, first LookupError: no model",
    "Draws": "for one sample: a reward must depend on the sample only",
}


def reward_class(score):
    return type("Reward", (), {"__init__": lambda self, config: None, "score": lambda self, sample: score(sample)})


@pytest.mark.parametrize("name", REWARDS)
def test_reward(name):
    assert REWARDS[name] in violations(check_reward, reward_class(vars(Rewards)[name]))


def test_a_reward_that_exits_on_an_odd_response():
    reward = reward_class(lambda sample: 1.0 if sample.response.strip() else Rewards.Exits(sample))
    assert "score() ended the process with sys.exit(3) was called for response ''" in violations(check_reward, reward)


def test_a_reward_that_needs_columns_takes_own_samples():
    reward = reward_class(lambda sample: float(sample.columns["weight"]))
    assert "it raised on all 12 samples" in violations(check_reward, reward)
    samples = make_samples()
    for sample in samples:
        sample.columns = {"weight": 2}
    check_reward(reward, None, samples)


class Datasets:
    class Forgets(Digits):
        last = 0

        def row(self, index):
            Datasets.Forgets.last += 1
            return super().row(index + Datasets.Forgets.last)

    class Both(Digits):
        def row(self, index):
            return Row(text="a", messages=[{"role": "user", "content": "a"}])

    class Numbers(Digits):
        def row(self, index):
            return Row(text="a", answer=3)

    class Empty(Digits):
        size = 0

    class Mapping(Digits):
        def row(self, index):
            return {"text": "a"}


DATASETS = {
    "Forgets": "row(index) depends on what was asked before",
    "Both": "row(0) must have text or messages, and not both",
    "Numbers": "the answer of row(0) must be a text, not a int",
    "Empty": "size is 0: it must be the number of rows",
    "Mapping": "row(0) must be a rlinf_cli.api.Row, not a dict",
}


@pytest.mark.parametrize("name", DATASETS)
def test_dataset(name):
    assert DATASETS[name] in violations(check_dataset, getattr(Datasets, name), DigitsConfig())


def test_a_dataset_that_hashes_texts_is_another_one_in_another_process(site):
    site.add("rlinf-hashing", {}, hashing_rows="""
        from rlinf_cli.api import Row

        class Hashing:
            size = None

            def __init__(self, config, seed): pass

            def row(self, index): return Row(text=str(hash(f"row {index}")))
    """)
    from hashing_rows import Hashing

    found = violations(check_dataset, Hashing)
    assert found.startswith("row(index) is another one in another process: does it depend on hash()")
    assert "\n" not in found


class Models:
    class AnyVariant(TinyModel):
        def __init__(self, variant, seed):
            super().__init__("", seed)

    class SameKey(TinyModel):
        def key(self):
            return "tiny"

    class BadKey(TinyModel):
        def key(self):
            return "tiny/digits"

    class NoTokenizer(TinyModel):
        def build(self, directory):
            super().build(directory)
            for path in directory.glob("tokenizer*"):
                path.unlink()

    class Random(TinyModel):
        def build(self, directory):
            make_model(directory / "x", seed=int(np.random.default_rng().integers(10**6)))
            for path in (directory / "x").iterdir():
                path.rename(directory / path.name)


MODELS = {
    "AnyVariant": "built with variant 'no.such.variant' it must raise rlinf_cli.api.UsageError",
    "SameKey": "another seed gives other weights under the same key()",
    "BadKey": "key() is 'tiny/digits': it must be the name of a directory",
    "NoTokenizer": "has no tokenizer",
    "Random": "build() with the same seed writes other weights each time",
}


@pytest.mark.parametrize("name", MODELS)
def test_model(name):
    assert MODELS[name] in violations(check_model, getattr(Models, name))


@pytest.mark.parametrize(("tracker_id", "told"), [
    (lambda run: "", "tracker_id must be a text that is not empty"),
    (lambda run: f"{run.step}", "after a resume tracker_id is '2', before it was '0'"),
])
def test_logger(tracker_id, told):
    class Logger:
        def __init__(self, config, run):
            self.tracker_id = tracker_id(run)

        def log(self, step, metrics): pass

        def close(self, status): pass

    assert told in violations(check_logger, Logger)


def test_a_logger_that_cannot_take_nan():
    class Logger:
        tracker_id = "one"

        def __init__(self, config, run): pass

        def log(self, step, metrics):
            return [int(value) for value in metrics.values()]

        def close(self, status): pass

    assert "it raised ValueError: cannot convert float NaN to integer" in violations(check_logger, Logger)


class Workflows:
    class UnknownRole(Reasoning):
        def run(self, flow):
            flow.groups("critic")

    class UnknownMethod(Reasoning):
        def run(self, flow):
            (rollout,) = flow.groups("rollout")
            rollout.answer()

    class WrongArguments(Reasoning):
        def run(self, flow):
            rollout, _ = flow.groups("rollout", "actor")
            rollout.generate("prompts", "samples")

    class Unfed(Reasoning):
        def run(self, flow):
            (actor,) = flow.groups("actor")
            for step in flow.steps():
                (scored,) = step.channels("scored")
                actor.train(scored)

    class Unread(Reasoning):
        def run(self, flow):
            (rollout,) = flow.groups("rollout")
            for step in flow.steps():
                prompts, samples = step.channels("prompts", "samples")
                step.feed(prompts)
                rollout.generate(prompts, samples)

    class OneStep(Reasoning):
        def run(self, flow):
            next(iter(flow.steps()))

    class NothingTrained(Reasoning):
        def roles(self, config):
            return [replace(role, stateful=False) for role in super().roles(config)]

    class NoWorker(Reasoning):
        def roles(self, config):
            return [*super().roles(config), Role("judge", "rlinf_cli.api:Row")]

    class EvaluatesNothing(Reasoning):
        def evaluate(self, flow, step):
            return None


WORKFLOWS = {
    "UnknownRole": "run() asks for role 'critic', which roles() does not have (rollout, reward, actor)",
    "UnknownMethod": "role 'rollout' is asked for answer(), which RolloutWorker does not offer",
    "WrongArguments": "rollout.generate(): its argument 'prompts' must be a channel; it is a str",
    "Unfed": "a step must feed a channel",
    "Unread": "nobody takes from channel 'samples', which rollout.generate() fills",
    "OneStep": "run() took 1 of 2 steps",
    "NothingTrained": "a role must be stateful",
    "NoWorker": "the worker of role 'judge', rlinf_cli.api:Row, must be a class that inherits from rlinf_cli.api.Worker",
    "EvaluatesNothing": "evaluate() must give the channel into which scored groups are put",
}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflow(name):
    assert WORKFLOWS[name] in violations(check_workflow, getattr(Workflows, name))


def test_a_channel_that_nobody_fills_is_told_with_who_waits():
    class Waits(Reasoning):
        def run(self, flow):
            (actor,) = flow.groups("actor")
            for step in flow.steps():
                prompts, scored = step.channels("prompts", "scored")
                step.feed(prompts)
                actor.train(prompts)
                actor.train(scored)

    assert "nobody puts into channel 'scored': actor.train() would wait for ever" in violations(check_workflow, Waits)


def test_every_violation_is_told_once():
    class Two(GRPO):
        def advantages(self, returns):
            raise UsageError("no advantages here")

    lines = violations(check_algorithm, Two, GRPOConfig()).splitlines()
    assert len(lines) == len(set(lines)) == 3
    assert all("no advantages here" in line for line in lines)


def test_the_first_violation_is_the_cause(tmp_path):
    with pytest.raises(AssertionError) as caught:
        check_algorithm(Algorithms.Raises, GRPOConfig())
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_extension_is_checked_with_its_defaults(plugins):
    check_reward(plugins.get("reward", "exact"))


def test_the_fixtures_need_no_conftest(packages):
    """They are imported from `rlinf_cli.plugins.testing`, which itself does without pytest."""
    done = packages.python("-c", "import sys, rlinf_cli.plugins.testing as t; t.make_samples(); print('pytest' in sys.modules)")
    assert done.stdout == "False\n", done.stderr

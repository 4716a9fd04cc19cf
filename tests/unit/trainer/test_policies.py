"""Training of environments' policies: the same step however it is split, and the state of it."""

import json
import pickle
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from safetensors.torch import load_file

from rlinf_cli.api import Minibatch, Ranks, Transitions, UsageError, weights_checksum
from rlinf_cli.config.load import check, resolve
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.plugins.testing import make_segment
from rlinf_cli.workers.policy_learner import PolicyLearner
from rlinf_cli.workers.transitions import deal_segments
from rlinf_policies.cnn import CNNPolicy
from rlinf_policies.config import CNNConfig, MLPConfig
from rlinf_policies.mlp import MLPPolicy
from rlinf_policies.vla import VLAPolicy
from rlinf_policies.vla_config import VLAConfig
from rlinf_ppo.algorithm import PPO
from rlinf_ppo.config import PPOConfig
from rlinf_torch.trainer import TorchTrainer
from rlinf_torch.trainer_config import TorchTrainerConfig

PLAIN = {"lr": 1e-3, "max_grad_norm": 1e9}
SMALL = {"hidden": [16]}


@dataclass
class Keys:
    epochs: int = 1
    minibatches: int = 1


@dataclass
class Config:
    algorithm: Keys
    seed: int = 0


@pytest.fixture
def train():
    """`train(**keys)`: a trainer of a small policy over 4 numbers; `policy=...`: of that one."""

    def make(policy=None, total=10, **keys):
        torch.manual_seed(0)
        policy = policy or MLPPolicy(MLPConfig(**SMALL), Box(-9, 9, (4,)), Box(-1, 1, (2,)))
        return TorchTrainer.policy(TorchTrainerConfig(**{**PLAIN, **keys}), policy, "cpu", Ranks(), total)

    return make


def ppo(**keys):
    return PPO(PPOConfig(entropy_coef=0.01, **keys))


def portions(world=1, epochs=1, minibatches=1, seed=0):
    return deal_segments([make_segment(seed=seed)], ppo(), Config(Keys(epochs, minibatches)), 0, world).portions


def step_on(trainer, transitions, rows, algorithm=None):
    """One optimiser step on these rows; its metrics and the gradient, as AdamW's first moment has it."""
    algorithm = algorithm or ppo()
    trainer.begin(transitions, rows)
    share = np.full(len(rows), 1 / len(rows), np.float32)
    return trainer.train_minibatch(Minibatch(rows, share), algorithm.loss, algorithm.value_loss, algorithm.needs_entropy, 0.5)


def gradient(moments):
    return torch.cat([moments[name].flatten() for name in sorted(moments) if name.endswith("exp_avg")])


def far(one, other):
    return float((one - other).norm() / other.norm())


def seen(policy, space):
    """Experience of a policy that sees: what it drew about random images, with random advantages."""
    noise, count = np.random.default_rng(0), 7
    images = torch.from_numpy(noise.integers(0, 256, (count, *space.shape), np.uint8))
    observation = images
    if hasattr(policy, "encode"):
        observation = {"observation": images, "instruction": torch.from_numpy(policy.encode(["go", "lift it"] * 3 + ["push"]))}
    acted = policy.act(observation, torch.from_numpy(noise.standard_normal((count, policy.noise_size)).astype(np.float32)))

    def draw():
        return noise.standard_normal(count).astype(np.float32)

    given = {name: one.numpy() for name, one in observation.items()} if isinstance(observation, dict) else observation.numpy()
    shift = noise.standard_normal(acted.logprobs.shape).astype(np.float32) / 10
    return Transitions(given, acted.sampled.numpy(), acted.logprobs.numpy() + shift, draw(), acted.values.numpy(), draw())


def policies():
    space, actions = Box(0, 255, (32, 32, 3), np.uint8), Box(-1, 1, (2,))
    torch.manual_seed(1)
    return {"cnn": (CNNPolicy(CNNConfig(hidden=[8], channels=[4], features=8), space, actions).eval(), space),
            "vla": (VLAPolicy(VLAConfig(chunk=2, instruction_tokens=6), space, actions).eval(), space)}


@pytest.mark.parametrize("name", ["cnn", "vla"])
def test_the_gradient_does_not_depend_on_micro_batches_of_what_is_seen(train, name):
    policy, space = policies()[name]
    start = {key: tensor.clone() for key, tensor in policy.state_dict().items()}
    transitions, rows, found = seen(policy, space), np.arange(7), []
    for size in (7, 3, 1):
        policy.load_state_dict(start)
        policy.zero_grad()
        trainer = train(policy, micro_batch_steps=size)
        metrics = step_on(trainer, transitions, rows)
        found.append((metrics, gradient(trainer._optimiser.state())))
    for metrics, moved in found[1:]:
        assert far(moved, found[0][1]) < 1e-6
        assert metrics == pytest.approx(found[0][0], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("size", [50, 7, 1])
def test_the_gradient_does_not_depend_on_micro_batches(train, size):
    """Scenario N4."""
    (portion,) = portions()
    rows = np.arange(72)
    whole, split = train(), train(micro_batch_steps=size)
    expected, metrics = (step_on(trainer, portion.transitions, rows) for trainer in (whole, split))
    assert far(gradient(split._optimiser.state()), gradient(whole._optimiser.state())) < 1e-6
    assert metrics == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_the_loss_is_that_of_its_formulas(train):
    (portion,) = portions()
    trainer = train()
    metrics = step_on(trainer, portion.transitions, np.arange(72))
    fresh, one = train()._policy.model, portion.transitions
    found = fresh.evaluate(torch.from_numpy(one.observations), torch.from_numpy(one.sampled))
    ratio = (found.logprobs[:, 0] - torch.from_numpy(one.logprobs[:, 0])).exp()
    advantages = torch.from_numpy(one.advantages)
    policy = -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages) - 0.01 * found.entropy[:, 0]
    old, targets = torch.from_numpy(one.old_values), torch.from_numpy(one.value_targets)
    clipped = old + (found.values - old).clamp(-0.2, 0.2)
    value = torch.maximum((found.values - targets).square(), (clipped - targets).square()) / 2
    assert metrics["actor/loss"] == pytest.approx(policy.mean().item(), rel=1e-5)
    assert metrics["critic/loss"] == pytest.approx(value.mean().item(), rel=1e-5)
    assert metrics["actor/entropy"] == pytest.approx(found.entropy.mean().item(), rel=1e-5)
    (policy.mean() + 0.5 * value.mean()).backward()
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in fresh.parameters()])
    assert metrics["actor/grad_norm"] == pytest.approx(norm.item(), rel=1e-5)


def test_two_ranks_train_what_one_does(run_two_ranks, train, tmp_path):
    """Scenario N4; running statistics included."""
    (tmp_path / "job").write_bytes(pickle.dumps((SMALL, PLAIN, portions(world=2))))
    run_two_ranks(Path(__file__).with_name("rank_policy.py"), tmp_path / "job", tmp_path)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    alone = train()
    metrics = PolicyLearner(ppo(), alone).train(portions()[0])
    assert far(gradient(load_file(tmp_path / "trained" / "optimizer.safetensors")), gradient(alone._optimiser.state())) < 1e-6
    assert first["metrics"] == pytest.approx(metrics, rel=1e-5, abs=1e-6)
    held, weights = load_file(tmp_path / "trained" / "policy.safetensors"), dict(alone.named_weights())
    assert held.keys() == weights.keys()
    for name in "norm.mean", "norm.variance", "norm.count":
        torch.testing.assert_close(held[name], weights[name], rtol=1e-6, atol=1e-6)


def test_statistics_move_after_the_step(train):
    trainer, (portion,) = train(), portions(epochs=2, minibatches=3)
    metrics = PolicyLearner(ppo(), trainer).train(portion)
    assert metrics["actor/lr"] == PLAIN["lr"]
    norm, x = trainer._policy.model.norm, torch.from_numpy(portion.transitions.observations)
    assert norm.count.item() == 72
    torch.testing.assert_close(norm.mean, x.mean(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(norm.variance, x.var(0, correction=0), rtol=1e-5, atol=1e-6)


def test_going_on_from_a_checkpoint_is_exact(train, tmp_path):
    unbroken, broken = train(), train()
    for seed in (0, 1):
        (portion,) = portions(epochs=2, minibatches=2, seed=seed)
        PolicyLearner(ppo(), unbroken).train(portion)
        PolicyLearner(ppo(), broken).train(portion)
        (tmp_path / f"{seed}").mkdir()
        broken.save(tmp_path / f"{seed}")
        broken = train()
        broken.load(tmp_path / f"{seed}")
    assert weights_checksum(broken.named_weights()) == weights_checksum(unbroken.named_weights())
    assert broken._optimiser.steps == unbroken._optimiser.steps == 8
    files = sorted(path.name for path in (tmp_path / "0").iterdir())
    assert files == ["optimizer.safetensors", "policy.safetensors", "trainer.json"]


def test_a_checkpoint_of_another_policy(train, tmp_path):
    PolicyLearner(ppo(), first := train()).train(portions()[0])
    first.save(tmp_path)
    other = train(MLPPolicy(MLPConfig(hidden=[8]), Box(-9, 9, (4,)), Box(-1, 1, (2,))))
    with pytest.raises(ValueError, match=r"policy\.safetensors does not fit"):
        other.load(tmp_path)
    (tmp_path / "policy.safetensors").unlink()
    with pytest.raises(ValueError, match="is of a run that trained no environment's policy"):
        other.load(tmp_path)


@pytest.mark.parametrize("name", ["advantages", "value_targets"])
def test_numbers_that_are_not_finite_leave_the_weights(train, name):
    (portion,), trainer = portions(), train()
    poisoned = replace(portion.transitions, **{name: np.full(72, np.nan, np.float32)})
    before = weights_checksum(trainer.named_weights())
    with pytest.raises(FloatingPointError, match="the weights were left as they were"):
        step_on(trainer, poisoned, np.arange(72))
    assert weights_checksum(trainer.named_weights()) == before


def test_the_step_ends_where_the_policy_has_gone_far_enough(train):
    (portion,) = portions(epochs=5, minibatches=2)
    metrics = PolicyLearner(ppo(target_kl=1e-6), train(lr=0.01)).train(portion)
    assert 0 < metrics["actor/stopped_frac"] < 1


def test_without_anything_to_train_the_step_counts(train):
    segment = make_segment()
    segment.lost[:] = True
    (portion,) = deal_segments([segment], ppo(), Config(Keys()), 0, 1).portions
    learner = PolicyLearner(ppo(), trainer := train())
    before = weights_checksum(trainer.named_weights())
    assert learner.train(portion) == {"actor/skipped": 1.0}
    assert learner.version == 1
    assert not learner.changed
    assert weights_checksum(trainer.named_weights()) == before


def test_offloading_changes_nothing(train, tmp_path):
    stays, moves = train(), train(offload="file")
    for seed in (0, 1):
        (portion,) = portions(seed=seed)
        PolicyLearner(ppo(), stays).train(portion)
        PolicyLearner(ppo(), moves).train(portion)
        assert moves.offload() > 0
        assert moves.onload() > 0
    assert weights_checksum(moves.named_weights()) == weights_checksum(stays.named_weights())


@pytest.mark.parametrize("keys", [{"lora_rank": 4}, {"train_layers": 1}])
def test_a_policy_is_trained_whole(train, keys):
    with pytest.raises(UsageError, match="an environment's policy is trained whole"):
        train(**keys)


@pytest.mark.parametrize("key", ["lora_rank", "train_layers"])
def test_and_that_is_told_before_anything_starts(key):
    with pytest.raises(UsageError, match=rf"trainer\.{key}=4 is for language models, and env\.name=CartPole-v1 is set"):
        check(resolve([], ["env.name=CartPole-v1", f"trainer.{key}=4"], {}, load_plugins(None)))

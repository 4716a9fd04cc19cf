"""Behaviour cloning: every demonstrated step counts alike, and a policy comes to do what was demonstrated."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from rlinf_bc.algorithm import BC
from rlinf_bc.config import BCConfig
from rlinf_cli.api import Imitates, LossInputs
from rlinf_policies.config import MLPConfig
from rlinf_policies.mlp import MLPPolicy

PLACE = Box(-np.inf, np.inf, (3,), np.float32)
ACTION = Box(np.array([-1.0, -2.0], np.float32), np.array([1.0, 4.0], np.float32))


def policy(action=ACTION, **settings):
    torch.manual_seed(0)
    return MLPPolicy(MLPConfig(hidden=[32], normalize=False, **settings), PLACE, action)


def test_the_loss_is_the_mean_negative_log_likelihood():
    logprobs, weights = torch.tensor([-1.0, -2.0, -3.0, -6.0], requires_grad=True), torch.full((4,), 0.25)
    inputs = LossInputs(logprobs, torch.zeros(4), torch.ones(4), weights, torch.tensor([0, 0, 1, 1]), torch.zeros(4))
    loss, metrics = BC(BCConfig()).loss(inputs)
    assert (loss.item(), metrics["actor/nll"].item()) == (3.0, 3.0)


def test_all_steps_are_trained():
    returns = SimpleNamespace(rewards=torch.zeros(3, 2))
    targets, _ = BC(BCConfig()).segment_advantages(returns)
    assert targets.trained.all()
    assert targets.advantages.tolist() == [[1, 1]] * 3


@pytest.mark.parametrize("squash", [False, True])
def test_a_policy_says_how_it_would_have_drawn_what_it_did(squash):
    made = policy(squash=squash, log_std=-2.0)
    acted = made.act(torch.randn(16, 3), torch.randn(16, 2))
    assert isinstance(made, Imitates)
    assert torch.allclose(made.drawn(acted.actions), acted.sampled, atol=1e-4)


def test_an_action_at_the_bound_of_a_squashed_policy_is_near_what_it_can_draw():
    u = policy(squash=True).drawn(torch.tensor([[1.0, -2.0]]))
    assert torch.isfinite(u).all()
    assert u[0].tanh().tolist() == pytest.approx([0.99, -0.99])


def test_choices_are_numbered_from_their_start():
    assert policy(Discrete(3, start=5)).drawn(torch.tensor([5, 7])).tolist() == [0, 2]


def test_a_policy_learns_what_is_shown():
    made = policy()
    seen = torch.rand(256, 3) * 2 - 1
    shown = torch.stack([seen[:, 0], seen[:, 1] * seen[:, 2]], 1)
    optimiser = torch.optim.Adam(made.parameters(), 1e-2)
    for _ in range(150):
        logprobs = made.evaluate(seen, made.drawn(shown)).logprobs.flatten()
        inputs = LossInputs(logprobs, logprobs.detach(), torch.ones(256), torch.full((256,), 1 / 256), torch.arange(256),
                            logprobs.detach())
        loss, _ = BC(BCConfig()).loss(inputs)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert (made.act(seen, torch.zeros(256, 2), True).actions - shown).abs().mean() < 0.05


@pytest.mark.parametrize(("workflow", "wanted"), [("embodied", ["shows no demonstrations", "is no file"]),
                                                  ("cloning", ["is no file"])])
def test_what_does_not_go_with_it(workflow, wanted, tmp_path):
    config = BCConfig(str(tmp_path / "none.hdf5"))
    problems = list(config.problems_with(SimpleNamespace(workflow=workflow)))
    assert [text in problem for text, problem in zip(wanted, problems, strict=True)] == [True] * len(wanted)


def test_a_file_that_is_there_is_no_problem(tmp_path):
    (tmp_path / "some.hdf5").write_bytes(b"")
    assert list(BCConfig(str(tmp_path / "some.hdf5")).problems_with(SimpleNamespace(workflow="cloning"))) == []

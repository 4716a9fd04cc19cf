"""What is wrong with a run in environments is told before anything starts."""

import numpy as np
import pytest
from gymnasium import spaces

from rlinf_cli.config.load import resolve
from rlinf_cli.errors import CapacityError, UsageError
from rlinf_cli.flow.placement import Placement
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs import embodied
from rlinf_cli.runs.embodied import check_embodied, check_ranks, is_beside
from rlinf_cli.runs.preflight import prepare


@pytest.fixture(scope="module")
def installed():
    return load_plugins(None)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """Spaces that have been looked at once are not looked at again."""
    monkeypatch.setenv("RLINF_CACHE", str(tmp_path_factory.getbasetemp() / "spaces"))


def resolved(installed, *arguments):
    return resolve([], ["env.name=CartPole-v1", "cluster.devices=cpu:2", *arguments], {}, installed)


def placed(environment, rollout, fused=()):
    return Placement({"environment": tuple((n,) for n in environment), "rollout": tuple((n,) for n in rollout),
                      "actor": ((0,),)}, "cpu", fused)


class TestPrepared:
    def test_there_are_no_prompts(self, installed):
        prepared = prepare(resolved(installed, "placement=temporal"), installed)
        assert list(prepared.roles) == ["environment", "rollout", "actor"]
        assert prepared.stream.sources == ()
        assert prepared.stream.epoch(3) == 0
        assert prepared.fingerprint
        assert is_beside(prepared.placement)

    def test_an_evaluation_is_of_episodes(self, installed):
        prepared = prepare(resolved(installed, "eval.every=2", "eval.episodes=5"), installed)
        assert [start.number for start in prepared.evaluation.starts] == [0, 1, 2, 3, 4]
        assert prepared.evaluation.is_due(2)
        assert not prepared.evaluation.is_due(3)


class TestWhatDoesNotGoTogether:
    @pytest.mark.parametrize(("arguments", "message"), [
        (["model.name=tiny:digits"], r"model\.name=tiny:digits .* is no policy: in an environment acts one of .*mlp"),
        (["algorithm.name=sft"], r"algorithm\.name=sft .* does not learn from environments: algorithm\.name=ppo does"),
        (["env.group=3"], r"env\.group=3 .* does not divide env\.count=16"),
    ])
    def test_is_one_sentence(self, installed, arguments, message):
        with pytest.raises(UsageError, match=message):
            check_embodied(resolved(installed, *arguments), installed)

    def test_a_policy_that_does_not_see(self, installed, monkeypatch):
        camera = spaces.Box(0, 255, (8, 8, 3), np.uint8), spaces.Discrete(2)
        monkeypatch.setattr("rlinf_cli.workers.environments.build.spaces", lambda config: camera)
        with pytest.raises(UsageError, match=r"model\.name=mlp .* cannot act in env\.name=CartPole-v1 .*image"):
            check_embodied(resolved(installed), installed)

    def test_a_workflow_without_an_environment(self, installed):
        config = resolve([], ["workflow=embodied", "algorithm.name=ppo", "model.name=mlp"], {}, installed)
        with pytest.raises(UsageError, match=r"env\.name is empty: name one, as in --env CartPole-v1"):
            check_embodied(config, installed)

    def test_more_than_memory_holds(self, installed, monkeypatch):
        monkeypatch.setattr(embodied, "memory", lambda: (1e9, 1e6))
        config = resolved(installed, "rollout.steps=1000000")
        told = r"rollout\.steps=1000000 in env\.count=16 .* need about 1\.0 GB .* 0\.0 GB are free"
        with pytest.raises(CapacityError, match=told):
            check_embodied(config, installed)


class TestShares:
    def test_equal_ones_pass(self, installed):
        check_ranks(resolved(installed, "env.count=12"), placed((0, 1), (0, 1, 2)))

    def test_unequal_ones_are_told_with_what_would_do(self, installed):
        with pytest.raises(UsageError, match=r"env\.count=16 .* among 3 ranks of 'rollout' in 2 halves: 12 or 18 would do"):
            check_ranks(resolved(installed), placed((0,), (0, 1, 2)))

    def test_halves_may_be_what_is_in_the_way(self, installed):
        with pytest.raises(UsageError, match=r"'environment' in 2 halves: 4 or 8 would do, or env\.halves=1"):
            check_ranks(resolved(installed, "env.count=6"), placed((0, 1), (0,)))

    def test_in_one_process_there_are_no_halves(self, installed):
        together = placed((0,), (0,), (("environment", "rollout", "actor"),))
        check_ranks(resolved(installed, "env.count=3"), together)
        with pytest.raises(UsageError, match="in 2 halves"):
            check_ranks(resolved(installed, "env.count=3", "env.processes=2"), together)

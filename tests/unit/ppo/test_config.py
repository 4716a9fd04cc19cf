"""What of PPO's keys does not go together is told before anything starts."""

import pytest

from rlinf_cli.config.load import check, resolve
from rlinf_cli.errors import UsageError
from rlinf_cli.plugins.loader import load_plugins

INSTALLED = load_plugins(None)


def configure(*settings):
    return resolve([], ["algorithm.name=ppo", *settings], {}, INSTALLED)


def test_what_fits():
    check(configure("algorithm.kl_coef=0.1", "algorithm.kl_target=6"))


@pytest.mark.parametrize(("settings", "sentence"), [
    (["algorithm.kl_target=6"], "algorithm.kl_target has nothing to adapt while algorithm.kl_coef is 0"),
    (["workflow=supervised"], "workflow=supervised has no rewards"),
])
def test_what_does_not(settings, sentence):
    with pytest.raises(UsageError, match=sentence):
        check(configure(*settings))


def test_a_trainer_that_trains_no_critics(monkeypatch):
    config = configure()
    monkeypatch.setattr(type(config.settings("trainer")), "trains_critics", False)
    with pytest.raises(UsageError, match=r"trainer\.name=torch trains no critics, which algorithm\.name=ppo needs"):
        check(config)


@pytest.mark.parametrize(("settings", "streams"), [
    ([], False), (["algorithm.normalize_advantages=false"], True),
    (["algorithm.normalize_advantages=false", "algorithm.kl_coef=0.1", "algorithm.kl_target=1"], False)])
def test_a_prompt_can_be_trained_by_itself_where_nothing_joins_it_to_the_step(settings, streams):
    assert configure(*settings).settings("algorithm").per_group is streams


def test_there_is_no_reference_model_in_an_environment():
    check(configure("env.name=CartPole-v1"))
    with pytest.raises(UsageError, match=r"there is no reference model in an environment: give algorithm\.kl_coef=0"):
        check(configure("env.name=CartPole-v1", "algorithm.kl_coef=0.1"))

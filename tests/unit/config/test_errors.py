import pytest

from rlinf_cli.config.errors import SHOWN, ConfigError, nearest_key, raise_if_any
from rlinf_cli.errors import UsageError

KEYS = ["steps", "seed", "rollout.prompts", "rollout.top_p", "rollout.stop", "algorithm.epochs", "algorithm.clip_low",
        "algorithm.clip_high", "trainer.lr", "trainer.warmup_steps", "engine.name", "trainer.name"]


@pytest.mark.parametrize(("wrong", "nearest"), [
    ("algorithm.clip_lo", "algorithm.clip_low"), ("algorithm.clip_hi", "algorithm.clip_high"),
    ("algoritm.epochs", "algorithm.epochs"), ("epochs", "algorithm.epochs"), ("rollout.lr", "trainer.lr"),
    ("rollout.topp", "rollout.top_p"), ("trainer.warmup_step", "trainer.warmup_steps"), ("step", "steps"),
    ("trainer.nam", "trainer.name"), ("name", "engine.name"),
])
def test_the_nearest_key_is_found(wrong, nearest):
    assert nearest_key(wrong, KEYS) == f" Did you mean '{nearest}'?"


@pytest.mark.parametrize("wrong", ["quux", "rollout.zzz", "x.y.z", ""])
def test_nothing_is_suggested_when_nothing_is_near(wrong):
    assert nearest_key(wrong, KEYS) == ""


def test_problems_come_once_and_in_order():
    error = ConfigError(["b", "a", "b"])
    assert str(error) == "b\na"
    assert isinstance(error, UsageError)
    assert error.exit_code == 2


def test_as_many_as_fit_are_shown_without_a_rest():
    assert str(ConfigError([str(n) for n in range(SHOWN)])).splitlines()[-1] == str(SHOWN - 1)


def test_no_problem_is_no_error():
    raise_if_any([])
    with pytest.raises(ConfigError):
        raise_if_any(["a"])

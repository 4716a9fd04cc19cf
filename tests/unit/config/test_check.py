import pytest

from rlinf_cli.config.errors import ConfigError
from rlinf_cli.config.load import check
from rlinf_cli.errors import CapacityError


def told(config, devices=None):
    with pytest.raises(ConfigError) as caught:
        check(config, devices)
    return str(caught.value).splitlines()


def test_what_goes_together_passes(config):
    check(config(), 2)
    check(config("cluster.devices=cpu:2"), 2)
    check(config("cluster.devices=cpu:64"), None)


@pytest.mark.parametrize(("prompts", "group", "parts", "nearest"), [
    (16, 8, 5, "4 or 8"), (3, 5, 2, "1 or 3"), (2, 4, 9, "8"), (7, 7, 48, "7 or 49"),
])
def test_the_samples_of_a_step_split_into_equal_minibatches(config, prompts, group, parts, nearest):
    found = config(f"rollout.prompts={prompts}", f"rollout.group_size={group}", f"algorithm.minibatches={parts}")
    assert told(found) == [
        f"algorithm.minibatches={parts} (from the command line): the {prompts * group} samples of a step "
        f"(rollout.prompts {prompts} x rollout.group_size {group}) cannot be split into {parts} equal parts: "
        f"{nearest} would do"]


@pytest.mark.parametrize("parts", [1, 2, 48])
def test_each_nearest_number_would_do(config, parts):
    check(config("rollout.prompts=6", "rollout.group_size=8", f"algorithm.minibatches={parts}"))


def test_the_plugins_rules_are_asked(config):
    assert told(config("rollout.group_size=1")) == ["rollout.group_size=1: grpo needs at least 2 samples of a prompt"]
    assert told(config("algorithm.clip_high=0.1")) == [
        "algorithm.clip_high=0.1 must not be below algorithm.clip_low"]
    check(config("rollout.group_size=1", "algorithm.name=sft"))


def test_several_greedy_responses_would_all_be_one(config):
    assert told(config("eval.k=4")) == [
        "eval.k=4 (from the command line): with eval.temperature 0 all responses to a prompt are the same: give "
        "eval.temperature a value above 0, or eval.k=1"]
    check(config("eval.k=4", "eval.temperature=0.7"))


@pytest.mark.parametrize(("arguments", "words"), [
    (["checkpoint.best=reward/mean"], ["with checkpoint.every 0 there is only the last checkpoint"]),
    (["checkpoint.best=eval/digits/mean@1", "checkpoint.every=2"], ["with eval.every 0 nothing is evaluated"]),
    (["checkpoint.best=-eval/x/length"], ["checkpoint.every=STEPS", "eval.every=STEPS"]),
])
def test_the_best_checkpoint_must_be_measured_and_written(config, arguments, words):
    lines = told(config(*arguments))
    assert len(lines) == len(words)
    assert all(word in line and line.startswith(f"{arguments[0]} (from") for word, line in zip(words, lines))


@pytest.mark.parametrize("metric", ["", "reward/mean", "-actor/kl", "eval/a.jsonl/pass@8", "reward/my.py:score/mean"])
def test_the_best_checkpoint_is_that_of_a_metric(config, metric):
    check(config(f"checkpoint.best={metric}", "checkpoint.every=2", "eval.every=2"))


@pytest.mark.parametrize("metric", ["reward", "--reward/mean", "reward/", "/mean", "reward mean", "- reward/mean"])
def test_what_is_no_metric_is_refused(problems, metric):
    assert problems(f"checkpoint.best={metric}") == [
        f"checkpoint.best={metric} (from the command line): must be a metric as GROUP/NAME, or -GROUP/NAME"]


def test_all_problems_are_told_at_once(config):
    found = config("rollout.prompts=3", "rollout.group_size=1", "algorithm.minibatches=2", "algorithm.clip_high=0.1")
    assert [line.partition("=")[0] for line in told(found)] == [
        "algorithm.minibatches", "algorithm.clip_high", "rollout.group_size"]


def test_more_devices_than_there_are_is_a_matter_of_capacity(config):
    with pytest.raises(CapacityError) as caught:
        check(config("cluster.devices=cuda:7"), 2)
    assert str(caught.value) == ("cluster.devices=cuda:7 (from the command line): only 2 cuda devices are there: "
                                 "at most cuda:2 can be had")
    with pytest.raises(CapacityError, match=r"cluster\.devices=auto takes what there is"):
        check(config(devices="cuda:1"), 0)

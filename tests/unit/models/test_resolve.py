"""A named model is built once, whole or not at all, however many processes ask for it."""

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from rlinf_cli.errors import UsageError
from rlinf_cli.models.resolve import build_once, default_cache, resolve_model


def slow_build(directory):
    (directory / "config.json").write_text("{}")
    time.sleep(0.3)
    (directory / "builder").write_text(str(os.getpid()))


def build_in_process(cache, queue):
    found = build_once(Path(cache), "slow", slow_build)
    queue.put((found / "builder").read_text())


def test_a_directory_is_itself(model, plugins, monkeypatch):
    monkeypatch.chdir(model.parent)
    assert resolve_model("model", 0, plugins) == model.resolve()
    assert resolve_model(str(model), 0, plugins) == model.resolve()


def test_a_broken_directory_is_refused(model, plugins):
    (model / "config.json").unlink()
    with pytest.raises(UsageError, match=r"has no config\.json"):
        resolve_model(str(model), 0, plugins)


def test_a_named_model_is_built_into_the_cache_and_found_again(plugins, tmp_path):
    first = resolve_model("tiny", 3, plugins, tmp_path / "cache")
    assert first == tmp_path / "cache" / "tiny-digits-seed3-v1"
    stamp = (first / "model.safetensors").stat().st_mtime_ns
    assert resolve_model("tiny:digits", 3, plugins, tmp_path / "cache") == first
    assert (first / "model.safetensors").stat().st_mtime_ns == stamp
    assert oct(first.stat().st_mode)[-3:] == "755"


def test_seeds_have_directories_of_their_own(plugins, tmp_path):
    one, other = (resolve_model("tiny", seed, plugins, tmp_path) for seed in (0, 1))
    assert one != other
    assert (one / "model.safetensors").read_bytes() != (other / "model.safetensors").read_bytes()
    assert (one / "tokenizer.json").read_bytes() == (other / "tokenizer.json").read_bytes()


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("RLINF_CACHE", str(tmp_path))
    assert default_cache() == tmp_path
    monkeypatch.delenv("RLINF_CACHE")
    assert default_cache() == Path.home() / ".cache" / "rlinf" / "models"


def test_processes_that_ask_at_once_get_one_build(tmp_path):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=build_in_process, args=(tmp_path, queue)) for _ in range(3)]
    for process in processes:
        process.start()
    builders = {queue.get(timeout=20) for _ in processes}
    for process in processes:
        process.join(20)
    assert len(builders) == 1


def test_a_failed_build_leaves_nothing_that_is_taken_for_a_model(tmp_path):
    def fails(directory):
        slow_build(directory)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        build_once(tmp_path, "slow", fails)
    assert not (tmp_path / "slow").exists()
    assert (build_once(tmp_path, "slow", slow_build) / "builder").exists()
    left = [entry.name for entry in tmp_path.iterdir() if entry.is_dir()]
    assert left == ["slow"]


def test_a_hub_name_without_a_network(plugins, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UsageError) as caught:
        resolve_model("nobody/nothing", 0, plugins)
    assert "hub cannot be reached" in str(caught.value)
    assert "hf download nobody/nothing" in str(caught.value)


def test_a_policy_of_environments_is_no_model(plugins, tmp_path):
    with pytest.raises(UsageError, match="model 'mlp' is a policy of environments: choose one with --env NAME"):
        resolve_model("mlp", 0, plugins, tmp_path)

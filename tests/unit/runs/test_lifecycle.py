"""Plugins are told how a run goes; one that fails is left out."""

import json
import sys

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.errors import PluginError, RunError
from rlinf_cli.plugins.lifecycle import CheckpointWritten, StepEnd
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.launch import Interrupted
from rlinf_cli.runs.lifecycle import Lifecycle, check_loggers

RECORDER = """
from rlinf_cli.api import hookimpl
heard = []

@hookimpl
def on_run_start(context):
    heard.append(("start", context))
    context.message("hello")

@hookimpl
def on_step_end(context): heard.append(("step", context))

@hookimpl
def on_checkpoint(context): heard.append(("checkpoint", context))

@hookimpl
def on_run_end(context): heard.append(("end", context))
"""
RAISING = """
from rlinf_cli.api import hookimpl
calls = []

@hookimpl
def on_run_start(): print("to stdout")

@hookimpl
def on_step_end(context):
    calls.append(context.step)
    if context.step == 2:
        {what}

@hookimpl
def on_run_end(**everything): calls.append(sorted(everything))
"""


class Messages:
    def __init__(self):
        self.lines = []

    def message(self, label, text):
        self.lines.append((label, text))


@pytest.fixture
def shown():
    return Messages()


@pytest.fixture
def lifecycle(site, shown, tmp_path):
    """Of these plugins, and no others."""
    (tmp_path / "logs").mkdir()
    return lambda *names: Lifecycle(load_plugins(names), shown, tmp_path / "logs")


@pytest.fixture
def config(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "sk-0123456789")
    return resolve([], ["cluster.address=${oc.env:MY_API_KEY}:1", "steps=9"], {}, load_plugins(third_party=False))


@pytest.fixture
def recorder(site):
    site.add("rlinf-recorder", {"recorder": "recorder_hooks"}, "2.1", recorder_hooks=RECORDER)
    return lambda: sys.modules["recorder_hooks"].heard


def step(number):
    return StepEnd(number, {"reward/mean": number / 10}, ())


def test_every_hook_is_told_what_happened(recorder, lifecycle, config, shown, tmp_path):
    told = lifecycle("recorder")
    with told.until_end(lambda: 4):
        told.start(config, tmp_path / "runs/x", 3)
        told.step(step(4))
        told.checkpoint(CheckpointWritten(4, tmp_path / "c", True))
    assert [what for what, _ in recorder()] == ["start", "step", "checkpoint", "end"]
    start, end = recorder()[0][1], recorder()[-1][1]
    assert (start.name, start.directory, start.step, start.steps) == ("x", tmp_path / "runs/x", 3, 9)
    assert (start.logs, list(start.loggers)) == (tmp_path / "logs", [])
    assert recorder()[1][1].metrics == {"reward/mean": 0.4}
    assert (end.status, end.step, end.reason) == ("finished", 4, "finished")
    assert shown.lines == [("recorder", "hello")]


def test_secrets_of_the_configuration_are_hidden(recorder, lifecycle, config, tmp_path):
    lifecycle("recorder").start(config, tmp_path, 0)
    assert config.cluster.address == "sk-0123456789:1"
    shown = recorder()[0][1].config
    assert shown["cluster"]["address"] == "${oc.env:MY_API_KEY}:1"
    assert "sk-0123456789" not in json.dumps(shown)


@pytest.mark.parametrize(("error", "status", "reason"), [
    (RunError("it broke"), "failed", "it broke"),
    (Interrupted("stopped by hand"), "interrupted", "stopped by hand"),
    (KeyboardInterrupt(), "interrupted", "interrupted"),
    (ZeroDivisionError("1/0"), "failed", "1/0"),
])
def test_the_end_says_why(recorder, lifecycle, config, tmp_path, error, status, reason):
    told = lifecycle("recorder")
    told.start(config, tmp_path, 0)
    with pytest.raises(type(error)), told.until_end(lambda: 7):
        raise error
    end = recorder()[-1][1]
    assert (end.status, end.step, end.reason) == (status, 7, reason)


def test_a_run_that_did_not_start_does_not_end(recorder, lifecycle):
    with pytest.raises(RunError), lifecycle("recorder").until_end(lambda: 0):
        raise RunError("no cluster")
    assert recorder() == []


@pytest.mark.parametrize(("what", "words"), [
    ("raise ValueError('bad step')", "ValueError: bad step"), ("raise SystemExit(3)", "sys.exit(3) was called"),
])
def test_a_plugin_that_raises_is_named_once_and_left_out(site, recorder, lifecycle, config, shown, tmp_path, what, words):
    site.add("rlinf-raising", {"a-raising": "raising_hooks"}, "0.3", raising_hooks=RAISING.format(what=what))
    told = lifecycle("a-raising", "recorder")
    with told.until_end(lambda: 3):
        told.start(config, tmp_path, 0)
        for number in (1, 2, 3):
            told.step(step(number))
    log = tmp_path / "logs" / "plugins.log"
    assert shown.lines[1:] == [("warning", f"plugin 'a-raising' (rlinf-raising 0.3): on_step_end raised {words}; the run goes on "
                                           f"without its lifecycle hooks (traceback: {log})")]
    assert sys.modules["raising_hooks"].calls == [1, 2]
    assert len(recorder()) == 5
    assert "raising_hooks.py" in log.read_text()
    assert log.read_text().startswith("on_step_end of plugin 'a-raising' (rlinf-raising 0.3)\nTraceback")


def test_an_interrupt_in_a_hook_ends_the_run(site, lifecycle, config, tmp_path):
    site.add("rlinf-raising", {"raising": "raising_hooks"}, raising_hooks=RAISING.format(what="raise KeyboardInterrupt"))
    told = lifecycle("raising")
    told.start(config, tmp_path, 0)
    with pytest.raises(KeyboardInterrupt):
        told.step(step(2))


def test_a_hook_need_not_take_the_context_and_prints_to_stderr(site, lifecycle, config, tmp_path, capsys):
    site.add("rlinf-raising", {"raising": "raising_hooks"}, raising_hooks=RAISING.format(what="pass"))
    told = lifecycle("raising")
    with told.until_end(lambda: 0):
        told.start(config, tmp_path, 0)
    assert sys.modules["raising_hooks"].calls == [["context"]]
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "to stdout\n")


class TestOrder:
    NOTING = """
        import builtins
        from rlinf_cli.api import hookimpl

        @hookimpl
        def on_run_end(context): builtins.order.append(__name__)

        @hookimpl(specname="on_run_end")
        def once_more(context): builtins.order.append(__name__ + " again")
        """

    def test_is_that_of_the_names_with_those_of_rlinf_cli_first(self, site, monkeypatch):
        import builtins

        monkeypatch.setattr(builtins, "order", [], raising=False)
        site.add("rlinf-z", {"a-late": "late_hooks"}, late_hooks=self.NOTING)
        site.add("rlinf-a", {"b-later": "later_hooks"}, later_hooks=self.NOTING)
        site.add("rlinf-cli", {"core": "core_hooks"}, "9", core_hooks=self.NOTING)
        pairs = load_plugins().lifecycle("on_run_end")
        assert [info.name for info, _ in pairs] == ["core", "core", "a-late", "a-late", "b-later", "b-later"]
        for _, function in pairs:
            function(None)
        assert builtins.order[2:] == ["late_hooks", "late_hooks again", "later_hooks", "later_hooks again"]

    def test_a_failed_plugin_has_no_hooks(self, site):
        site.add("rlinf-bad", {"bad": "bad_hooks"}, bad_hooks=self.NOTING + "\n        raise ValueError\n")
        assert load_plugins(["bad"]).lifecycle("on_run_end") == []


class TestLoggers:
    def test_are_handed_over_ready_to_be_opened(self, recorder, site, lifecycle, tmp_path):
        source = """
            from rlinf_cli.api import Extension, hookimpl

            class Board:
                def __init__(self, config, run): self.seen = (config, run)

            @hookimpl
            def register_loggers(): return [Extension("board", target="board_hooks:Board")]
            """
        site.add("rlinf-board", {"board": "board_hooks"}, board_hooks=source)
        config = resolve([], ["log.loggers=[board]"], {}, load_plugins())
        lifecycle("recorder", "board").start(config, tmp_path, 0)
        (chosen,) = recorder()[0][1].loggers
        assert (chosen.name, chosen.open("a run").seen) == ("board", (None, "a run"))

    def test_need_the_plugin_that_feeds_them(self, site):
        everything = load_plugins(third_party=False)
        config = resolve([], ["log.loggers=[tensorboard]"], {}, everything)
        check_loggers(config, everything)
        with pytest.raises(PluginError, match=r"log\.loggers=\[tensorboard\] needs the plugin 'loggers' of rlinf-cli, which is "
                                              r"not loaded: name it in RLINF_PLUGINS too"):
            check_loggers(config, load_plugins(["grpo"]))
        check_loggers(resolve([], [], {}, everything), load_plugins(["grpo"]))

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from textwrap import dedent

import click
import pytest
from click.testing import CliRunner

from rlinf_cli import __version__, errors
from rlinf_cli.commands import COMMANDS, main
from rlinf_cli.commands._shell import Shell, console, emit, table
from rlinf_cli.environment import environment

FAILURES = {
    "run": errors.RunError("the actor died"),
    "usage": errors.UsageError("unknown key 'x'"),
    "plugin": errors.PluginError("reward 'x' needs y"),
    "capacity": errors.CapacityError("needs 7 devices, there are 2"),
    "bug": ZeroDivisionError("division by zero"),
    "silent": AssertionError(),
    "abort": click.Abort(),
    "ctrl-c": KeyboardInterrupt(),
}


@click.command()
@click.argument("failure")
def fail(failure):
    raise FAILURES[failure]


@click.command()
def answer():
    return 42


@click.command()
def leave():
    click.get_current_context().exit(7)


@click.command()
def closed():
    raise OSError(errno.EPIPE, "Broken pipe")


@pytest.fixture
def shell(monkeypatch):
    """The group `rlinf` with commands of this file, imported only when they run."""
    monkeypatch.setitem(sys.modules, "commands_of_the_test", sys.modules[__name__])
    names = ("fail", "answer", "leave", "closed")
    lazy = {name: (f"commands_of_the_test:{name}", f"What {name} does.") for name in names}
    lazy["absent"] = ("rlinf_cli.no_such_module:absent", "Never imported by the help.")
    return Shell("rlinf", params=main.params, callback=main.callback, lazy=lazy)


@pytest.fixture
def run(shell):
    return lambda *args, **settings: CliRunner().invoke(shell, args, **settings)


def test_the_help_lists_the_commands_in_order_without_importing_them(run):
    result = run("--help")
    assert result.exit_code == 0
    listed = [line.split()[0] for line in result.stdout.partition("Commands:\n")[2].splitlines()]
    assert listed == ["fail", "answer", "leave", "closed", "absent"]
    assert "Never imported by the help." in result.stdout


@pytest.mark.parametrize(("failure", "code"), [("run", 1), ("usage", 2), ("plugin", 3), ("capacity", 4)])
def test_an_error_is_one_line_on_stderr_and_its_exit_code(run, failure, code):
    result = run("fail", failure)
    assert result.exit_code == code
    assert result.stderr == f"Error: {FAILURES[failure]}\n"
    assert result.stdout == ""


@pytest.mark.parametrize("settings", [(["--traceback"], {}), ([], {"RLINF_TRACEBACK": "1"})])
@pytest.mark.parametrize("failure", ["usage", "bug"])
def test_the_traceback_comes_before_the_sentence_when_asked_for(run, settings, failure):
    options, env = settings
    lines = run(*options, "fail", failure, env=env).stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2].endswith(f"{type(FAILURES[failure]).__name__}: {FAILURES[failure]}")
    assert lines[-1].startswith("Error: ")


def test_an_unexpected_exception_is_one_sentence_that_says_where(run):
    result = run("fail", "bug")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("Error: unexpected ZeroDivisionError: division by zero (")
    assert f"{__file__}:" in result.stderr
    assert "RLINF_TRACEBACK=1" in result.stderr
    assert "unexpected AssertionError (" in run("fail", "silent").stderr


@pytest.mark.parametrize("failure", ["abort", "ctrl-c"])
def test_an_interruption_is_exit_130_without_a_traceback(run, failure):
    result = run("--traceback", "fail", failure)
    assert result.exit_code == 130
    assert result.stderr.strip() == "Error: interrupted"


def test_a_closed_pipe_is_no_error_message(run):
    result = run("--traceback", "closed")
    assert (result.exit_code, result.stderr) == (1, "")


def test_a_returned_value_is_no_exit_code_but_an_asked_for_exit_is(run):
    assert run("answer").exit_code == 0
    assert run("leave").exit_code == 7


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["fial"], "No such command 'fial'. Did you mean 'fail'? See: rlinf --help"),
        (["fail"], "Missing argument 'FAILURE'. See: rlinf fail --help"),
        (["--tracebak"], "No such option '--tracebak'. Did you mean '--traceback'? See: rlinf --help"),
        (["fail", "run", "more"], "Got unexpected extra argument (more) See: rlinf fail --help"),
    ],
)
def test_wrong_usage_looks_like_every_other_error(run, args, told):
    result = run(*args)
    assert result.exit_code == 2
    assert result.stderr == f"Error: {told}\n"


def test_without_arguments_the_help_is_shown(run):
    result = run()
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: rlinf ")


def test_a_caller_in_the_same_process_gets_the_exception(shell):
    with pytest.raises(errors.UsageError, match="unknown key"):
        shell.main(["fail", "usage"], standalone_mode=False)


def test_the_version_is_that_of_the_package():
    assert CliRunner().invoke(main, ["--version"]).stdout == f"rlinf {__version__}\n"


def test_no_plugins_holds_for_the_command_and_its_child_processes_only(monkeypatch):
    monkeypatch.delenv("RLINF_NO_PLUGINS", raising=False)
    seen = []
    spy = click.Command("spy", callback=lambda: seen.append(os.environ.get("RLINF_NO_PLUGINS")))
    monkeypatch.setitem(main.commands, "spy", spy)
    for args in (["--no-plugins", "spy"], ["spy"]):
        assert CliRunner().invoke(main, args).exit_code == 0
    assert seen == ["1", None]


def test_environment_restores_what_was_there(monkeypatch):
    monkeypatch.setenv("RLINF_TEST_A", "before")
    monkeypatch.delenv("RLINF_TEST_B", raising=False)
    with environment(RLINF_TEST_A="during", RLINF_TEST_B="during"):
        assert (os.environ["RLINF_TEST_A"], os.environ["RLINF_TEST_B"]) == ("during", "during")
    assert os.environ["RLINF_TEST_A"] == "before"
    assert "RLINF_TEST_B" not in os.environ


def test_every_command_of_the_table_has_a_line_of_help():
    help_text = CliRunner().invoke(main, ["--help"]).stdout
    for name, (_, summary) in COMMANDS.items():
        assert f"  {name}" in help_text
        assert summary in help_text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_exists(name):
    found = main.resolve_command(click.Context(main), [name])[1]
    assert isinstance(found, click.Command)
    assert found.name == name
    assert found.callback is not None


# -- output ---------------------------------------------------------------------------------------------------------


def test_json_is_one_document_and_builds_no_table(capsys):
    emit({"name": "ü", "values": (1, 2.5, None)}, as_json=True, table_fn=lambda: pytest.fail("not asked for"))
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"name": "ü", "values": [1, 2.5, None]}
    assert printed.err == ""


def test_json_has_no_numbers_that_json_cannot_spell(capsys):
    emit([float("nan"), {"loss": float("inf")}, (1.0, -float("inf"))], as_json=True, table_fn=str)
    assert json.loads(capsys.readouterr().out) == [None, {"loss": None}, [1.0, None]]


def test_a_table_is_not_wrapped_in_a_pipe_and_reads_no_markup(capsys):
    cells = ("rlinf-cli[maniskill] :smile: 12", "x" * 300)
    emit(None, as_json=False, table_fn=lambda: table(("what", "long"), [cells]))
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["what", "long"]
    assert row.rstrip() == "  ".join(cells)


def test_a_table_without_column_names_has_no_header(capsys):
    emit(None, as_json=False, table_fn=lambda: table(("", ""), [("a", "b")]))
    assert capsys.readouterr().out.split() == ["a", "b"]


def test_progress_goes_to_stderr(capsys):
    console(stderr=True).print("step [1/2]")
    console().print("done")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("done\n", "step [1/2]\n")


# -- as a process ---------------------------------------------------------------------------------------------------


def terminal(args, **environment):
    """Run `rlinf` with a terminal on stdout and stderr; returns what it printed there."""
    reader, writer = os.openpty()
    env = {**os.environ, "TERM": "xterm", **environment}
    subprocess.run([sys.executable, "-m", "rlinf_cli", *args], stdout=writer, stderr=writer, env=env, check=False)
    os.close(writer)
    with os.fdopen(reader, "rb") as printed:
        return printed.read1(65536).decode()


@pytest.mark.parametrize(("variables", "coloured"), [({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)])
def test_colour_is_for_terminals_and_no_color_is_honoured(variables, coloured):
    printed = terminal(["nonsense"], **variables)
    assert "No such command 'nonsense'" in printed
    assert ("\x1b[" in printed) is coloured


def test_errors_in_a_pipe_have_no_colour():
    ended = subprocess.run([sys.executable, "-m", "rlinf_cli", "nonsense"], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("Error: No such command 'nonsense'.")


def test_a_reader_that_leaves_early_causes_no_noise():
    program = dedent("""
        import sys
        import click
        from rlinf_cli.commands import main
        main.add_command(click.Command("flood", callback=lambda: [click.echo("x" * 1000) for _ in range(10_000)]))
        main(["flood"], prog_name="rlinf")
    """)
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdout.read(10)
    child.stdout.close()
    with child.stderr:
        assert child.stderr.read() == b""
    assert child.wait() == 1


def test_sigint_ends_the_process_with_130():
    program = dedent("""
        import time
        import click
        from rlinf_cli.commands import main

        def wait():
            click.echo("waiting")
            time.sleep(60)

        main.add_command(click.Command("wait", callback=wait))
        main(["wait"], prog_name="rlinf")
    """)
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "waiting\n"
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=20)
    assert (child.returncode, stderr.strip()) == (130, "Error: interrupted")


def complete(*words):
    env = {**os.environ, "_RLINF_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words)}
    env["COMP_CWORD"] = str(len(words) - 1)
    program = "from rlinf_cli.commands import main; main(prog_name='rlinf')"
    ended = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    return [line.partition(",")[2] for line in ended.stdout.splitlines()]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("rlinf", "plu"), ["plugins"]),
        (("rlinf", "--no"), ["--no-plugins"]),
        (("rlinf", "plugins", "in"), ["info"]),
        (("rlinf", "plugins", "info", "gr"), ["grpo"]),
        (("rlinf", "plugins", "info", "grpo", "--j"), ["--json"]),
    ],
)
def test_the_shell_completes_commands_options_and_plugin_names(words, offered):
    assert complete(*words) == offered

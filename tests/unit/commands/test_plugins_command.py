from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from rlinf_cli.commands import main
from rlinf_cli.plugins import loader

FULL = """
from rlinf_cli.api import Extension, hookimpl

@hookimpl
def register_rewards():
    return [Extension("polite", target="my_pkg.reward:Polite", config="my_pkg.config:Polite", summary="says [please]",
                      requires=("no-such-parser",), extra="parse")]
"""


@pytest.fixture
def installed(site, monkeypatch):
    """One plugin of each state: ok, needs, failed, and two in conflict."""
    site.add_reward("rlinf-fine", "fine", "kind", "mild")
    site.add("rlinf-polite", {"polite": "polite_hooks"}, version="0.2", polite_hooks=FULL)
    site.add("rlinf-myrew", {"my-reward": "my_reward_hooks"}, version="0.3.1", my_reward_hooks="import numpi")
    site.add_reward("rlinf-one", "one", "same")
    site.add_reward("rlinf-two", "two", "same")
    monkeypatch.setenv("RLINF_PLUGINS", "fine,polite,my-reward,one,two")


def run(*args):
    return CliRunner().invoke(main, ["plugins", *args])


def lines(result):
    """Rows of a table: plugin name -> its line with single spaces."""
    rows = [" ".join(line.split()) for line in result.stdout.splitlines()]
    return {row.partition(" ")[0]: row for row in rows}


def test_the_list_shows_state_version_and_origin_of_each_plugin(installed):
    result = run("list")
    rows = lines(result)
    assert result.exit_code == 0
    assert rows["plugin"] == "plugin version from provides state"
    assert rows["fine"] == "fine 1.0 rlinf-fine reward kind, reward mild ok"
    assert rows["polite"] == "polite 0.2 rlinf-polite reward polite needs: pip install 'rlinf-polite[parse]'"
    assert rows["my-reward"] == (
        "my-reward 0.3.1 rlinf-myrew — failed: No module named 'numpi' (rlinf plugins info my-reward --traceback)"
    )
    conflict = "conflict: reward same: registered by 'one' (rlinf-one 1.0) and 'two' (rlinf-two 1.0);"
    assert conflict in rows["one"]
    assert conflict in rows["two"]


def test_without_a_subcommand_the_list_is_shown(installed):
    assert run().stdout == run("list").stdout


@pytest.mark.parametrize("args", [["--json"], ["list", "--json"], ["--json", "list"]])
def test_the_list_as_json_is_one_document(installed, args):
    result = run(*args)
    by_name = {plugin["name"]: plugin for plugin in json.loads(result.stdout)}
    assert set(by_name) == {"fine", "polite", "my-reward", "one", "two"}
    assert by_name["my-reward"] == {
        "name": "my-reward",
        "version": "0.3.1",
        "distribution": "rlinf-myrew",
        "provides": [],
        "state": "failed",
        "problem": "No module named 'numpi'",
    }
    assert by_name["fine"]["provides"] == [{"kind": "reward", "name": "kind"}, {"kind": "reward", "name": "mild"}]


def test_info_shows_all_that_is_known_about_each_extension(installed):
    result = run("info", "polite")
    shown = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert shown == [
        "plugin polite 0.2",
        "from rlinf-polite",
        "module polite_hooks",
        "hooks register_rewards",
        "state needs: pip install 'rlinf-polite[parse]'",
        "",
        "reward polite",
        "summary says [please]",
        "target my_pkg.reward:Polite",
        "config my_pkg.config:Polite",
        "requires no-such-parser",
        "state needs: pip install 'rlinf-polite[parse]'",
    ]


@pytest.mark.parametrize("args", [["info", "polite", "--json"], ["--json", "info", "polite"]])
def test_info_as_json(installed, args):
    assert json.loads(run(*args).stdout) == {
        "name": "polite",
        "version": "0.2",
        "distribution": "rlinf-polite",
        "module": "polite_hooks",
        "hooks": ["register_rewards"],
        "state": "needs",
        "problem": "pip install 'rlinf-polite[parse]'",
        "traceback": "",
        "provides": [
            {
                "kind": "reward",
                "name": "polite",
                "summary": "says [please]",
                "target": "my_pkg.reward:Polite",
                "config": "my_pkg.config:Polite",
                "requires": ["no-such-parser"],
                "state": "needs",
                "problem": "pip install 'rlinf-polite[parse]'",
            }
        ],
    }


def test_info_of_a_failed_plugin_says_how_to_see_the_traceback_and_shows_it_then(installed):
    brief = run("info", "my-reward").stdout
    assert "No module named 'numpi' (rlinf plugins info my-reward --traceback)" in brief
    assert "Traceback" not in brief
    full = run("info", "my-reward", "--traceback").stdout
    assert "my_reward_hooks.py" in full
    assert full.rstrip().endswith("ModuleNotFoundError: No module named 'numpi'")
    assert "--traceback" not in full


def test_info_of_an_unknown_plugin_is_wrong_usage(installed):
    result = run("info", "polit")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "Error: there is no plugin 'polit'. Did you mean 'polite'? See: rlinf plugins\n"


def test_an_unknown_plugin_in_the_environment_is_wrong_usage(installed, monkeypatch):
    monkeypatch.setenv("RLINF_PLUGINS", "fine,absent")
    result = run()
    assert result.exit_code == 2
    assert "RLINF_PLUGINS names 'absent', which is not installed." in result.stderr


def test_no_plugins_leaves_those_of_rlinf_cli(site, monkeypatch):
    site.add_reward("rlinf-fine", "fine", "kind")
    site.add_reward("rlinf-cli", "core", "plain", version="9.9")
    result = CliRunner().invoke(main, ["--no-plugins", "plugins", "--json"])
    assert [plugin["name"] for plugin in json.loads(result.stdout)] == ["core"]


def test_what_a_plugin_prints_does_not_spoil_the_json(site, monkeypatch):
    site.add("rlinf-loud", {"loud": "loud_hooks"}, loud_hooks="print('hello')")
    monkeypatch.setenv("RLINF_PLUGINS", "loud")
    result = run("--json")
    assert json.loads(result.stdout)[0]["name"] == "loud"
    assert "hello" in result.stderr


def test_a_misspelt_subcommand_is_corrected(installed):
    result = run("lst")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: No such command 'lst'. Did you mean 'list'? See: rlinf plugins --help\n",
    )


def test_check_shows_every_check_and_ends_with_3_when_one_failed(installed):
    result = run("check", "fine", "my-reward")
    shown = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert result.exit_code == 3
    assert shown[0] == "plugin extension check state"
    assert "fine loads ok" in shown
    assert "fine reward kind summary failed: it has no summary, which rlinf plugins shows" in shown
    assert shown[-1] == "my-reward loads failed: failed: No module named 'numpi'"
    assert result.stderr.startswith("Error: 6 of 10 checks failed, the first of plugin 'fine': rlinf-fine has no description")


def test_check_as_json_is_one_document(installed):
    result = run("check", "my-reward", "--json")
    assert json.loads(result.stdout) == [{"plugin": "my-reward", "extension": "", "check": "loads", "state": "failed",
                                          "problem": "failed: No module named 'numpi'"}]
    assert (result.exit_code, json.loads(run("--json", "check", "my-reward").stdout)) == (3, json.loads(result.stdout))


def test_check_takes_the_third_party_plugins_by_default(site):
    result = run("check")
    assert (result.exit_code, result.stdout) == (
        0, "there are no third-party plugins here; name others to check them: rlinf plugins check NAME\n")
    assert json.loads(run("check", "--json").stdout) == []
    site.add("rlinf-broken", {"broken": "broken_hooks"}, broken_hooks="import numpi")
    loader._loaded.cache_clear()
    assert [finding["plugin"] for finding in json.loads(run("check", "--json").stdout)] == ["broken"]


def test_check_of_an_unknown_plugin_is_wrong_usage(installed):
    result = run("check", "fin")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "Error: there is no plugin 'fin'. Did you mean 'fine'? See: rlinf plugins\n"


def test_new_writes_a_package_and_says_what_comes_next(site, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("new", "dice", "--kind", "reward")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "rlinf-dice", "next  pip install -e 'rlinf-dice[test]' && pytest rlinf-dice && rlinf plugins check dice"]
    assert (tmp_path / "rlinf-dice" / "src" / "rlinf_dice" / "reward.py").is_file()
    again = run("new", "dice", "--kind", "reward")
    assert (again.exit_code, again.stderr) == (
        2, "Error: rlinf-dice exists already: nothing is overwritten, choose another NAME or --directory\n")


def test_new_takes_a_directory(site, tmp_path):
    result = run("new", "dice", "--kind", "dataset", "--directory", str(tmp_path / "mine"))
    assert result.stdout.splitlines()[0] == str(tmp_path / "mine" / "rlinf-dice")
    assert (tmp_path / "mine" / "rlinf-dice" / "pyproject.toml").is_file()


@pytest.mark.parametrize(("args", "told"), [
    (["dice"], "Missing option '--kind'. Choose from: algorithm, engine, trainer, reward, workflow, model, dataset, logger, "
     "policy, environment, agent, tool."),
    (["dice", "--kind", "rewards"], "'rewards' is not one of"),
    (["my_dice", "--kind", "reward"], "'my_dice' cannot be the name of a plugin"),
])
def test_new_with_wrong_usage(site, tmp_path, monkeypatch, args, told):
    monkeypatch.chdir(tmp_path)
    result = run("new", *args)
    assert result.exit_code == 2
    assert told in result.stderr
    assert list(tmp_path.glob("rlinf-*")) == []

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from rlinf_cli.commands import main
from rlinf_cli.commands._options import resolved, run_options, split
from rlinf_cli.config.schema import SECTIONS
from rlinf_cli.config.source import FLAGS


def run(*args):
    return CliRunner().invoke(main, ["--no-plugins", "config", *args])


class TestShow:
    def test_prints_a_config_file(self, tmp_path):
        shown = run("show", "steps=7", "--seed", "3")
        assert shown.exit_code == 0
        assert (yaml.safe_load(shown.stdout)["steps"], yaml.safe_load(shown.stdout)["seed"]) == (7, 3)
        (tmp_path / "again.yaml").write_text(shown.stdout)
        assert run("show", str(tmp_path / "again.yaml")).stdout == shown.stdout

    def test_as_json_says_the_same(self):
        assert json.loads(run("show", "steps=7", "--json").stdout) == yaml.safe_load(run("show", "steps=7").stdout)

    def test_tells_origins_on_request(self, tmp_path):
        (tmp_path / "run.yaml").write_text("rollout:\n  prompts: 32\n")
        file = str(tmp_path / "run.yaml")
        assert f"  prompts: 32  # {file}:2\n" in run("show", file, "--origins").stdout
        values = json.loads(run("show", file, "--algo", "grpo", "--origins", "--json").stdout)
        assert values["rollout.prompts"] == {"value": 32, "origin": f"{file}:2"}
        assert values["algorithm.name"] == {"value": "grpo", "origin": "--algo"}
        assert values["seed"] == {"value": 0, "origin": "the default"}

    def test_a_long_text_stays_in_its_line(self):
        shown = run("show", f"runs_dir={'x y ' * 5000}z")
        assert yaml.safe_load(shown.stdout)["runs_dir"] == "x y " * 5000 + "z"

    @pytest.mark.parametrize(("args", "words"), [
        (["steps=ten"], "Error: steps=ten (from the command line): an integer is needed\n"),
        (["--steps", "0"], "Error: steps=0 (from --steps): must be at least 1\n"),
        (["--steps", "1", "steps=2"], "Error: --steps 1 contradicts steps=2 on the command line: give one of them\n"),
        (["nowhere/at-all.yaml"], "Error: no such file: nowhere/at-all.yaml.\n"),
        (["steps"], "Error: 'steps' is neither a file nor KEY=VALUE: write KEY=VALUE, as in steps=100\n"),
        (["+a=1"], "Error: '+a=1': hydra's '+' does not exist here, every known key can be set without it: write a=1\n"
                   ),
    ])
    def test_a_mistake_is_exit_code_2_and_a_sentence(self, args, words):
        ended = run("show", *args)
        assert ended.exit_code == 2
        assert ended.stdout == ""
        assert ended.stderr.startswith(words)


class TestKeys:
    def test_lists_all_with_type_default_owner_and_meaning(self):
        lines = [" ".join(line.split()) for line in run("keys").stdout.splitlines()]
        rows = {line.split()[0]: line for line in lines}
        assert rows["key"] == "key type default owner meaning"
        assert rows["steps"] == ("steps int 100 core Steps to train: each generates, scores and trains one batch. "
                                 "(at least 1)")
        clips = [line for line in lines if line.startswith("algorithm.clip_low ")]
        owners = "algorithm dapo, dr-grpo, grpo, gspo, reinforce++, rloo (rlinf-cli)", "algorithm ppo (rlinf-cli)"
        assert all(owner in clip for owner, clip in zip(owners, clips, strict=True))
        assert {row.partition(".")[0] for row in rows if "." in row} == set(SECTIONS)

    def test_lists_those_below_a_prefix(self):
        listed = json.loads(run("keys", "algorithm", "--json").stdout)
        assert {entry["key"].partition(".")[0] for entry in listed} == {"algorithm"}
        clip = next(entry for entry in listed if entry["key"] == "algorithm.clip_low")
        assert set(clip) == {"key", "type", "default", "limits", "meaning", "owner"}
        assert (clip["type"], clip["default"]) == ("float", "0.2")

    def test_an_unknown_prefix_is_an_error(self):
        ended = run("keys", "algoritm")
        assert (ended.exit_code, ended.stdout) == (2, "")
        assert ended.stderr == ("Error: no key starts with 'algoritm'. Did you mean 'algorithm'? "
                                "See: rlinf config keys\n")

    def test_markdown_is_the_table_of_the_documentation(self):
        document = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
        assert run("keys", "--markdown").stdout in document


def test_schema_is_a_json_schema():
    schema = json.loads(run("schema").stdout)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["properties"]["rollout"]["properties"]["group_size"]["anyOf"][0] == {"type": "integer", "minimum": 1}


class TestOptions:
    def test_files_and_arguments_are_told_apart(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "plain").touch()
        (tmp_path / "a=b.yaml").touch()
        words = ["steps=1", "x.yaml", "plain", "steps", "dir/x", "+x.yaml", "~steps", "~/x.yaml", "a=b.yaml"]
        files, overrides = split(words)
        assert files == [Path("x.yaml"), Path("plain"), Path("dir/x"), Path.home() / "x.yaml"]
        assert overrides == ["steps=1", "steps", "+x.yaml", "~steps", "a=b.yaml"]

    def test_every_flag_is_an_option(self):
        @click.command()
        @run_options
        def command(**params):
            pass

        assert {option.name for option in command.params} == {"arguments", *FLAGS}

    def test_a_command_gets_its_configuration_with_files_before(self, tmp_path):
        found = []
        first = tmp_path / "first.yaml"
        first.write_text("steps: 5\nseed: 5\nname: first\n")

        @click.command()
        @run_options
        @click.option("--dry-run", is_flag=True)
        def command(dry_run, **params):
            found.append((dry_run, resolved(params, before=[first])))

        second = tmp_path / "second.yaml"
        second.write_text("steps: 6\nseed: 6\n")
        ended = CliRunner().invoke(command, [str(second), "seed=7", "--dry-run", "--algo", "grpo"],
                                   catch_exceptions=False)
        assert ended.exit_code == 0
        ((dry_run, config),) = found
        assert dry_run
        assert (config.name, config.steps, config.seed) == ("first", 6, 7)
        assert config.origin("algorithm.name") == "--algo"

"""`rlinf plan`: from a configuration and a profile to a table, a JSON document, a file."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import yaml
from click.testing import CliRunner

from rlinf_cli.commands import main
from rlinf_cli.scheduling import profile_file
from rlinf_cli.scheduling.profile import BatchPoint, DecodePoint, MemoryPoint, Profile, RoleProfile

ANALYTIC = ("--profile", "analytic:h100", "--model", "qwen2.5-7b", "rollout.prompts=64", "rollout.max_new_tokens=4096")


def measured(**changes):
    points = tuple(BatchPoint(1, size, 100 * size, 1, 0.001 + 0.01 * size) for size in (4, 8, 16))
    roles = {"rollout": RoleProfile("rollout", decoding=(DecodePoint(1, 1, 0.01), DecodePoint(1, 16, 0.02)), slots=16),
             "reward": RoleProfile("reward", points, needs_device=False),
             "actor": RoleProfile("actor", points, memory=(MemoryPoint(1, 8e9, 0),))}
    fields = {"workflow": "reasoning", "roles": roles, "lengths": (10, 20, 200, 20), "group": 2, "hardware": "2 cpu"}
    return Profile(**(fields | changes))


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """`plan("--devices", "2")` in an empty directory, without stored profiles, with `mine.json`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    profile_file.save(measured(), tmp_path / "mine.json")
    return lambda *words: CliRunner().invoke(main, ["plan", *words])


def test_the_table_has_the_chosen_plan_first(plan):
    done = plan("--profile", "mine.json", "--devices", "2")
    assert done.exit_code == 0, done.output
    header, first, *_ = done.stdout.splitlines()
    assert header.split() == ["plan", "predicted", "s/iteration", "bound", "by", "memory/device", "verdict"]
    assert "chosen" in first
    assert "profile: mine.json measured on 2 cpu" in done.stdout
    assert "search: " in done.stdout


def test_explained_it_says_where_the_time_goes(plan):
    done = plan("--profile", "mine.json", "--devices", "2", "--explain")
    assert "devices of" in done.stdout
    assert "devices of" not in plan("--profile", "mine.json", "--devices", "2").stdout


def test_json_is_one_document(plan):
    told = json.loads(plan("--profile", "mine.json", "--devices", "2", "--json", "--top", "3").stdout)
    assert told["plans"][0]["verdict"] == "chosen"
    assert {"mode", "tree", "step_s", "busy", "memory", "stages"} <= told["plans"][0].keys()
    assert set(told["placement"]) == {"rollout", "reward", "actor"}
    assert (told["devices"], told["source"], told["profile"]) == (2, "measured", "mine.json")
    step_s = [one["step_s"] for one in told["plans"] if one["step_s"] is not None]
    assert all(seconds >= step_s[0] * 0.999 for seconds in step_s)


@pytest.mark.parametrize(("hardware", "devices"), [("h100", "64"), ("h200", "8"), ("a100", "16")])
def test_machines_that_nobody_has_can_be_planned_for(plan, hardware, devices):
    done = plan(*ANALYTIC, "--profile", f"analytic:{hardware}", "--devices", devices)
    assert done.exit_code == 0, done.output
    assert f"analytic (roofline) on {devices} {hardware}, not measured on your machine" in done.stdout


def test_a_hub_name_of_a_known_shape_will_do(plan):
    done = plan("--profile", "analytic:h100", "--devices", "8", "--model", "Qwen/Qwen2.5-7B-Instruct")
    assert done.exit_code == 0, done.output


def test_neither_ray_nor_torch_is_needed(tmp_path):
    script = ("import sys; from click.testing import CliRunner; from rlinf_cli.commands import main\n"
              f"done = CliRunner().invoke(main, {['plan', *ANALYTIC, '--devices', '16', '--json']!r})\n"
              "assert done.exit_code == 0, done.output\n"
              "print(sorted({'ray', 'torch', 'transformers'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_plan_is_written_and_trained_with(plan, tmp_path):
    done = plan("--profile", "mine.json", "--devices", "2", "--out", "plan.yaml")
    assert "placement=plan.yaml" in done.stdout
    written = yaml.safe_load((tmp_path / "plan.yaml").read_text())
    assert written["devices"] == 2
    assert written["profile"] == "mine.json"
    dry = CliRunner().invoke(main, ["train", "--dry-run", "--devices", "cpu:2", "--placement", "plan.yaml"])
    assert dry.exit_code == 0, dry.output


def test_an_edited_plan_that_asks_too_much_is_refused(plan, tmp_path):
    (tmp_path / "plan.yaml").write_text("tree: rollout 2 | actor 2\n")
    done = CliRunner().invoke(main, ["train", "--dry-run", "--devices", "cpu:2", "--placement", "plan.yaml"])
    assert done.exit_code == 4
    assert done.stderr == ("Error: plan.yaml:1: the plan needs 4 devices side by side, but there are 2: give its roles fewer, or "
                           "let some take turns, with a comma\n")


def test_an_edited_plan_that_asks_too_much_memory_is_refused(plan, tmp_path):
    profile_file.save(measured(device_memory=9e9, roles=crowded()), tmp_path / "mine.json")
    (tmp_path / "plan.yaml").write_text("tree: rollout 1, actor 1\nprofile: mine.json\n")
    done = CliRunner().invoke(main, ["train", "--dry-run", "--devices", "cpu:2", "--placement", "plan.yaml"])
    assert done.exit_code == 4, done.output
    assert "plan.yaml:1: actor needs 10.0 GB on each of devices 0-0 beside what rollout leaves there, and they have 9.0 GB" in (
        done.stderr)
    (tmp_path / "plan.yaml").write_text("tree: rollout 1 | actor 1\nprofile: mine.json\n")
    assert CliRunner().invoke(main, ["train", "--dry-run", "--devices", "cpu:2", "--placement", "plan.yaml"]).exit_code == 0


def crowded():
    """Roles that leave room to one another on devices apart only."""
    roles = measured().roles
    return roles | {"rollout": replace(roles["rollout"], memory=(MemoryPoint(1, 2e9, 2e9),))}


def test_a_profile_that_is_stale_is_refused_and_what_a_plan_can_ask_for_is_called_out(plan, tmp_path):
    profile_file.save(measured(settings={"model.name": "tiny:digits"}), tmp_path / "old.json")
    done = plan("--profile", "old.json", "--devices", "2")
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: profile old.json is stale: ")
    assert "engine.slots unset → " in done.stderr
    done = plan("--profile", "mine.json", "--devices", "2")
    assert "note: mine.json was measured under other conditions: hardware: 2 cpu → 2 cpu · " in done.stdout
    assert "which settings and versions it was measured with is not known" in done.stdout


def test_a_damaged_profile_is_refused_with_the_reason(plan, tmp_path):
    (tmp_path / "bad.json").write_text('{"format": 1}')
    done = plan("--profile", "bad.json", "--devices", "2")
    assert done.exit_code == 2
    assert "bad.json is no profile that can be used: it has no 'workflow'. Measure again with: rlinf profile" in done.stderr


def test_a_placement_by_hand_is_shown_beside_the_others(plan):
    told = json.loads(plan("--profile", "mine.json", "--devices", "4", "--json", "placement=rollout+reward:0-2,actor:3").stdout)
    (mine,) = [one for one in told["plans"] if "as asked for" in one["verdict"]]
    assert mine["tree"] in ("rollout 3 | reward | actor 1", "(rollout 3 | reward) | actor 1")


@pytest.mark.parametrize(("words", "code", "message"), [
    (("--devices", "cpu:2"), 2, "no profile in "),
    (("--profile", "mine.json", "algorithm.kl_coef=0.1"), 2, "the profile has no role 'reference'"),
    (("--profile", "other.json"), 2, "the profile other.json cannot be read (No such file or directory)"),
    (("--profile", "analytic:b200", "--model", "qwen2.5-7b"), 2, "no data of the machine 'b200': known are h100, h200, a100"),
    (("--profile", "analytic:h100"), 2, "there is no analytic profile of model.name=tiny:digits"),
    (("--profile", "analytic:h100", "--model", "qwen-7b"), 2, "choose one of qwen2.5-1.5b, qwen2.5-7b"),
    (("--profile", "analytic:h100", "--model", "qwen2.5-32b", "--devices", "2"), 4, "2 h100 cannot train qwen2.5-32b"),
    (("--profile", "mine.json", "--devices", "some"), 2, "cluster.devices"),
    (("--profile", "mine.json", "--top", "0"), 2, "--top"),
])
def test_what_is_wrong_is_one_sentence(plan, words, code, message):
    done = plan(*words)
    assert done.exit_code == code, done.output
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_profile_it_says_what_to_run(plan):
    assert "Measure one with: rlinf profile" in plan("--devices", "cpu:2").stderr


def test_a_profile_of_another_workflow_is_refused(plan, tmp_path):
    profile_file.save(measured(workflow="supervised"), tmp_path / "sft.json")
    done = plan("--profile", "sft.json", "--devices", "2")
    assert done.exit_code == 2
    assert "profile sft.json is of workflow 'supervised', and this run has workflow 'reasoning'" in done.stderr


def test_too_little_memory_names_what_lacks_and_what_would_do(plan, tmp_path):
    profile_file.save(measured(device_memory=4e9), tmp_path / "small.json")
    done = plan("--profile", "small.json", "--devices", "2")
    assert done.exit_code == 4
    assert "actor needs 8.00 GB" in done.stderr
    assert "4.00 GB more on each would do" in done.stderr


def test_too_few_devices_for_a_rank_names_how_many_would_do(plan, tmp_path):
    roles = measured().roles
    profile_file.save(measured(roles=roles | {"actor": replace(roles["actor"], devices_per_rank=4)}), tmp_path / "wide.json")
    done = plan("--profile", "wide.json", "--devices", "2")
    assert done.exit_code == 4
    assert "no placement on 2 devices: actor can use only multiples of 4; 4 devices would do" in done.stderr


def test_a_directory_that_cannot_be_written_to(plan):
    done = plan("--profile", "mine.json", "--devices", "2", "--out", "missing/plan.yaml")
    assert done.exit_code == 2
    assert "cannot write missing/plan.yaml" in done.stderr

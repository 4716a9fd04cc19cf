"""`rlinf simulate`: a plan in, where the devices' time goes out."""

import json

import pytest
from click.testing import CliRunner

from rlinf_cli.commands import main
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.trace import read_trace
from rlinf_cli.scheduling import profile_file
from rlinf_cli.scheduling.profile import BatchPoint, DecodePoint, MemoryPoint, Profile, RoleProfile

SMALL = ("rollout.prompts=4", "rollout.group_size=2")


def measured():
    points = tuple(BatchPoint(1, size, 100 * size, 1, 0.001 + 0.01 * size) for size in (4, 8, 16))
    roles = {"rollout": RoleProfile("rollout", decoding=(DecodePoint(1, 1, 0.01), DecodePoint(1, 16, 0.02)), slots=16),
             "reward": RoleProfile("reward", points, needs_device=False),
             "actor": RoleProfile("actor", points, memory=(MemoryPoint(1, 8e9, 0),))}
    return Profile("reasoning", roles, (10, 20, 200, 20), 2, hardware="2 cpu")


@pytest.fixture
def simulate(tmp_path, monkeypatch):
    """`simulate("plan.yaml", ...)` in a directory with `plan.yaml`, `mine.json`, a run `runs/a`, and no stored profile."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    profile_file.save(measured(), tmp_path / "mine.json")
    (tmp_path / "plan.yaml").write_text("tree: rollout 1 | (reward, actor 1)\nprofile: mine.json\n")
    run = RunDirectory.create(tmp_path / "runs", "a", False, "rollout: {prompts: 4, group_size: 2}\n", {})
    run.write_plan("rollout: 0-1\nreward: 0\nactor: 0-1\n")
    run.close()
    return lambda *words: CliRunner().invoke(main, ["simulate", *words])


def told(done):
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_table_says_where_each_group_of_devices_spends_an_iteration(simulate):
    done = simulate("plan.yaml", *SMALL)
    assert done.exit_code == 0, done.output
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0] == "spatial rollout 1 | actor 1"
    assert lines[2].startswith("devices of number rollout actor")
    assert lines[3].startswith("rollout 1 ")
    assert "s an iteration" in done.stdout
    assert "profile: mine.json measured on 2 cpu" in done.stdout


def test_json_is_one_document_whose_states_add_up(simulate):
    found = told(simulate("plan.yaml", *SMALL, "--json"))
    assert (found["devices"], found["samples"], found["source"], found["profile"]) == (2, 8, "measured", "mine.json")
    assert found["step_s"] == pytest.approx(found["predicted_s"], rel=0.01)
    for states in found["busy"].values():
        assert sum(states.values()) == pytest.approx(found["step_s"])


def test_a_run_directory_is_simulated_with_its_own_configuration(simulate):
    found = told(simulate("runs/a", "--profile", "mine.json", "--json"))
    assert (found["mode"], found["devices"], found["samples"]) == ("temporal", 2, 8)


def test_more_devices_stretch_the_plan(simulate):
    words = ("plan.yaml", "rollout.prompts=64", "rollout.group_size=2", "--json", "--lengths", "constant:100")
    few, many = told(simulate(*words)), told(simulate(*words, "--devices", "16"))
    assert many["tree"] == "rollout 8 | (reward, actor 8)"
    assert many["step_s"] < few["step_s"] / 2


def test_other_lengths(simulate):
    short = told(simulate("plan.yaml", *SMALL, "--json", "--lengths", "constant:10"))
    long = told(simulate("plan.yaml", *SMALL, "--json", "--lengths", "lognormal:200,0.5", "rollout.max_new_tokens=2000"))
    assert long["step_s"] > 3 * short["step_s"]
    assert "lengths are assumed: constant:10" in short["notes"]


def test_a_thousand_devices_by_estimate(simulate, tmp_path):
    (tmp_path / "big.yaml").write_text("tree: rollout 512 | (reward, actor 512)\nprofile: analytic:h100\n")
    words = ("--model", "qwen2.5-7b", "rollout.prompts=256", "rollout.group_size=8", "rollout.max_new_tokens=4096",
             "--iterations", "2")
    found = told(simulate("big.yaml", *words, "--json"))
    assert (found["devices"], found["source"]) == (1024, "analytic")
    assert "analytic (roofline) on 1024 h100, not measured on your machine" in simulate("big.yaml", *words).stdout


def test_the_trace_is_one_of_a_run(simulate, tmp_path):
    (tmp_path / "t.json").write_text("not a trace")
    done = simulate("plan.yaml", *SMALL, "--iterations", "3", "--trace", "t.json")
    assert "t.json in ui.perfetto.dev" in done.stdout
    steps = read_trace(tmp_path / "t.json")
    assert [step.number for step in steps] == [1, 2, 3]
    assert set(steps[0].devices) == {"device 0", "device 1"}
    for states in steps[-1].devices.values():
        assert sum(states.values()) == pytest.approx(steps[-1].seconds, rel=1e-3)


@pytest.mark.parametrize(("words", "code", "sentence"), [
    (("missing.yaml",), 2, "missing.yaml cannot be read"),
    (("plan.yaml", "--profile", "nothing.json"), 2, "nothing.json"),
    (("plan.yaml", "--lengths", "normal:5"), 2, "there is no distribution 'normal'; did you mean 'lognormal'"),
    (("plan.yaml", "--lengths", "pareto:5"), 2, "as in pareto:LEAST,ALPHA"),
    (("plan.yaml", "--lengths", "constant:-1"), 2, "as in constant:TOKENS"),
    (("plan.yaml", "--trace", "no/where.json"), 2, "cannot write no/where.json"),
    (("plan.yaml", "--devices", "1"), 4, "needs 2 devices side by side, but there is 1"),
    (("bad.yaml",), 2, "there is no role 'actr'; did you mean 'actor'"),
])
def test_what_is_wrong_is_said_in_a_sentence(simulate, tmp_path, words, code, sentence):
    (tmp_path / "bad.yaml").write_text("tree: rollout 1 | (reward, actr 1)\nprofile: mine.json\n")
    done = simulate(*words, *SMALL)
    assert done.exit_code == code, done.output
    assert sentence in done.output
    assert len(done.stderr.strip().splitlines()) == 1

"""`rlinf profile` as a user calls it; nothing is measured."""

import json

import pytest
from click.testing import CliRunner

from rlinf_cli.commands import main
from rlinf_cli.commands import profile as module
from rlinf_cli.runs.profiling import Profiled
from rlinf_cli.scheduling.graph import Called, graph_of
from rlinf_cli.scheduling.profile import BatchPoint, DecodePoint, Profile, RoleProfile
from rlinf_cli.scheduling.profile_file import load

PROFILE = Profile("reasoning", {"rollout": RoleProfile("rollout", decoding=(DecodePoint(1, 1, 0.001),), slots=4),
                                "actor": RoleProfile("actor", (BatchPoint(1, 8, 90, 1, 1.6),))}, (1, 2, 2), 2, hardware="2 cpu")
GRAPH = graph_of([Called("rollout", "generate", (), ("samples",)), Called("actor", "train", ("samples",))])


@pytest.fixture
def rlinf(tmp_path, monkeypatch):
    """Runs `rlinf profile --algo grpo WORDS`; `sessions` has what was to be measured."""
    sessions = []

    def measured(session):
        sessions.append(session)
        return Profiled(PROFILE, GRAPH, ("something took what nobody declared",), 12.0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "_measured", measured)

    def call(*words):
        return CliRunner().invoke(main, ["profile", "--algo", "grpo", *words])

    call.sessions = sessions
    return call


def test_what_is_to_be_measured(rlinf):
    done = rlinf("--batch-sizes", "8, 4,8", "--repeat", "2", "--budget", "1.5", "--roles", "actor, rollout",
                 "rollout.group_size=2")
    assert done.exit_code == 0, done.output
    (session,) = rlinf.sessions
    assert (session.batches, session.wanted.repeat, session.wanted.budget_s) == ([4, 8], 2, 1.5)
    assert session.wanted.roles == ("actor", "rollout")
    assert session.prepared.config.rollout.group_size == 2


def test_the_page(rlinf, tmp_path):
    done = rlinf()
    assert done.exit_code == 0, done.output
    (kept,) = (tmp_path / "cache/rlinf/profiles").glob("*.json")
    said = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert said[:2] == ["role ranks samples seconds per sample memory/rank", "actor 1 8 1.6 s 200 ms"]
    assert "rollout: a decode step by active responses, 1 replica of up to 4" in said
    assert "responses: 3, 1.7 tokens on average, at most 2" in said
    assert "warning something took what nobody declared" in said
    assert f"measured in 0:00:12, written to {kept}" in said
    assert load(kept) == PROFILE


def test_as_json(rlinf, tmp_path):
    document = json.loads(rlinf("--json", "--out", "mine.json").stdout)
    assert document["path"] == "mine.json"
    assert document["graph"]["nodes"] == {"rollout": [], "actor": ["rollout"]}
    assert document["differences"] == ["something took what nobody declared"]
    assert load(tmp_path / "mine.json") == PROFILE
    assert not (tmp_path / "cache").exists()


def test_a_part_of_the_roles_is_not_kept_where_a_plan_would_find_it(rlinf, tmp_path):
    document = json.loads(rlinf("--json", "--roles", "actor").stdout)
    assert document["path"] is None
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(("words", "said"), [
    (("--batch-sizes", "4,x"), "'4,x' is no list of numbers above 0: write 4,8,16"),
    (("--batch-sizes", "0"), "'0' is no list of numbers above 0"), (("--repeat", "0"), "--repeat"),
    (("--budget", "0"), "--budget"), (("--roles", "critc"), "no role 'critc'"), (("rollout.promts=3",), "did you mean"),
])  # fmt: skip
def test_what_is_wrong(rlinf, words, said):
    done = rlinf(*words)
    assert done.exit_code == 2
    assert said.lower() in done.output.lower()
    assert not rlinf.sessions

"""Profiles that are written, read, refused and found."""

import json
import os

import pytest

from rlinf_cli.errors import UsageError
from rlinf_cli.scheduling.profile import BatchPoint, DecodePoint, MemoryPoint, Profile, RoleProfile
from rlinf_cli.scheduling.profile_file import differences, directory, find, load, save

PROFILE = Profile(
    "reasoning", {"rollout": RoleProfile("rollout", decoding=(DecodePoint(1, 4, 0.01),), slots=8,
                                         memory=(MemoryPoint(1, 2e9, 0.0),)),
                  "actor": RoleProfile("actor", (BatchPoint(2, 8, 100, 1, 0.5),), onload_s=0.25, spreads=(
                      RoleProfile("actor", (BatchPoint(1, 8, 100, 1, 0.4),), devices_per_rank=2),))},
    (3, 4, 5), 2, {("rollout", "actor"): 0.001}, 0.1, 0.2, "2 cpu", float("inf"), {"torch": "2.13.0"},
    {"rollout.max_new_tokens": "64"}, "measured", "2026-11-30T00:00:00+00:00")


def test_what_is_written_reads_back(tmp_path):
    path = tmp_path / "deeper/profile.json"
    save(PROFILE, path)
    assert load(path) == PROFILE
    assert os.listdir(path.parent) == ["profile.json"]


@pytest.mark.parametrize(("change", "reason"), [
    (lambda document: document.pop("roles"), "it has no 'roles'"),
    (lambda document: document.update(format=7), "it has format 7, and this version reads 1"),
    (lambda document: document["roles"]["actor"].update(speed=1), "unexpected keyword argument 'speed'"),
    (lambda document: document.update(transfers={"rollout": 1}), "'rollout' in its transfers is no pair of roles"),
])  # fmt: skip
def test_what_is_no_profile_is_refused_with_the_reason(tmp_path, change, reason):
    path = tmp_path / "profile.json"
    save(PROFILE, path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError) as refused:
        load(path)
    assert reason in str(refused.value)
    assert "rlinf profile" in str(refused.value)


def test_a_file_that_is_cut_or_not_there(tmp_path):
    path = tmp_path / "profile.json"
    with pytest.raises(UsageError, match="No such file"):
        load(path)
    save(PROFILE, path)
    path.write_text(path.read_text()[:-10])
    with pytest.raises(UsageError, match="it is no JSON"):
        load(path)


def test_a_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written to"):
        save(PROFILE, tmp_path / "file/profile.json")


def test_what_has_changed_is_said():
    assert differences(PROFILE, "2 cpu", {"torch": "2.13.0"}, {"rollout.max_new_tokens": "64"}) == {}
    assert differences(PROFILE, "8 cuda", {"torch": "2.14.0", "ray": "3"}, {}) == {
        "hardware": "hardware: 2 cpu → 8 cuda", "torch": "torch 2.13.0 → 2.14.0", "ray": "ray unset → 3",
        "rollout.max_new_tokens": "rollout.max_new_tokens 64 → unset"}


def test_the_newest_that_fits_is_found(tmp_path):
    same = ("reasoning", "2 cpu", PROFILE.versions, PROFILE.settings)
    assert find(tmp_path / "none", *same) == (None, [])
    for age, name in enumerate(("new", "old")):
        save(PROFILE, tmp_path / f"{name}.json")
        os.utime(tmp_path / f"{name}.json", (1000 - age, 1000 - age))
    (tmp_path / "broken.json").write_text("{")
    assert find(tmp_path, *same) == (tmp_path / "new.json", [])
    assert find(tmp_path, "reasoning", "4 cpu", PROFILE.versions, PROFILE.settings) == (None, ["hardware: 2 cpu → 4 cpu"])
    assert find(tmp_path, "embodied", *same[1:]) == (None, [])


def test_where_they_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert directory() == tmp_path / "rlinf/profiles"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert directory() == tmp_path / ".cache/rlinf/profiles"

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner

from rlinf_cli.commands import main


@pytest.fixture
def doctor(site):
    """Run `rlinf doctor WORDS`, in an environment with the distributions of `site` too."""
    return lambda *words: CliRunner().invoke(main, ["doctor", *words])


def test_a_healthy_environment(doctor):
    began = time.monotonic()
    ended = doctor("--json")
    assert time.monotonic() - began < 3
    assert ended.exit_code == 0, ended.stdout
    document = json.loads(ended.stdout)
    assert (document["usable"], document["exit_code"]) == (True, 0)
    assert {"python", "torch", "ray", "devices", "memory", "shared memory", "open files", "disk, here", "plugins", "extra lora",
            "model cache"} <= {finding["name"] for finding in document["findings"]}
    assert not [finding for finding in document["findings"] if finding["state"] == "broken"]


def test_a_broken_plugin_is_named_with_its_distribution(doctor, site):
    site.add("rlinf-broken", {"broken": "hooks_that_raise"}, hooks_that_raise="import no_such_module")
    ended = doctor()
    assert ended.exit_code == 3
    lines = ended.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if "plugin broken" in line)
    assert "rlinf-broken 1.0: No module named 'no_such_module'" in lines[at]
    assert lines[at].startswith("broken")
    assert "rlinf plugins info broken" in lines[at + 1]


def test_the_other_project_called_rlinf_does_no_harm(doctor, site):
    site.metadata("rlinf", "Metadata-Version: 2.1\nName: rlinf\nVersion: 0.2.0\n", "0.2.0")
    ended = doctor()
    assert ended.exit_code == 0
    assert "0.2.0 is another project of that name" in ended.stdout


def test_an_unknown_plugin_in_the_environment_is_told_like_any_finding(doctor, monkeypatch):
    monkeypatch.setenv("RLINF_PLUGINS", "grop")
    ended = doctor("--json")
    assert ended.exit_code == 3
    assert "RLINF_PLUGINS names 'grop'" in ended.stdout

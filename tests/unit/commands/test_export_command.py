from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlinf_cli.runs.checkpoints import Checkpoints
from rlinf_cli.runs.directory import RunDirectory


@pytest.fixture
def folder(tmp_path) -> Path:
    """A working directory with a run, `runs/a`, that has checkpoints of steps 10 and 20."""
    run = RunDirectory.create(tmp_path / "runs", "a", False, "", {})
    for step in (10, 20):
        with Checkpoints(run.checkpoints, keep_last=2).write(step, {}) as path:
            (path / "model").mkdir()
            save_file({"w": torch.full((1000,), float(step))}, path / "model" / "model.safetensors", {"format": "pt"})
            (path / "model" / "config.json").write_text('{"model_type": "qwen2", "dtype": "float32"}')
    run.close()
    return tmp_path


def rlinf(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RLINF_")}
    return subprocess.run([sys.executable, "-m", "rlinf_cli", "export", *arguments], cwd=folder, capture_output=True,
                          text=True, check=False, env=environment)


def test_what_was_written_and_how_to_load_it(folder):
    ended = rlinf(folder, "a", "out")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    assert [line.rstrip() for line in ended.stdout.strip().splitlines()] == [
        "exported   step 20 of runs/a",
        "directory  out  float32, 4.1 kB",
        "files      config.json  43 B",
        "           model.safetensors  4.1 kB",
        "load       transformers.AutoModelForCausalLM.from_pretrained('out')",
    ]
    assert load_file(folder / "out" / "model.safetensors")["w"][0] == 20.0


def test_json_is_one_document(folder):
    ended = rlinf(folder, "runs/a", "out", "--step", "10", "--dtype", "bfloat16", "--json")
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document.pop("bytes") == sum(document["files"].values())
    assert document == {
        "directory": "out", "run": "runs/a", "step": 10, "dtype": "bfloat16",
        "files": {name: (folder / "out" / name).stat().st_size for name in ("config.json", "model.safetensors")},
        "load": "transformers.AutoModelForCausalLM.from_pretrained('out')"}
    assert load_file(folder / "out" / "model.safetensors")["w"].dtype == torch.bfloat16


def test_overwrite(folder):
    assert rlinf(folder, "a", "out", "--step", "10").returncode == 0
    refused = rlinf(folder, "a", "out")
    assert refused.returncode == 2
    assert refused.stderr == ("Error: out is not empty: choose another directory, or replace the model in it with "
                              "--overwrite\n")
    assert rlinf(folder, "a", "out", "--overwrite").returncode == 0
    assert load_file(folder / "out" / "model.safetensors")["w"][0] == 20.0


@pytest.mark.parametrize(("arguments", "words"), [
    (["b", "out"], "no run 'b'"),
    (["a", "out", "--step", "11"], "no checkpoint of step 11 in runs/a/checkpoints: there are steps 10, 20"),
    (["a", "out", "--step", "0"], "0 is not in the range x>=1"),
    (["a", "out", "--dtype", "int4"], "'int4' is not one of 'float32', 'bfloat16', 'float16'"),
    (["a"], "Missing argument 'DIRECTORY'"),
    (["a", "runs/a/checkpoints/x"], "is among the checkpoints of the run"),
])
def test_wrong_use_is_one_sentence_and_exit_code_2(folder, arguments, words):
    ended = rlinf(folder, *arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert words in ended.stderr
    assert ended.stderr.startswith("Error: ")
    assert ended.stderr.count("\n") == 1
    assert not (folder / "out").exists()


def test_a_run_without_a_checkpoint(folder):
    RunDirectory.create(folder / "runs", "fresh", False, "", {}).close()
    ended = rlinf(folder, "fresh", "out", "--json")
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "has no checkpoint yet" in ended.stderr


def test_help_and_a_plain_copy_do_not_import_torch(folder):
    program = ("import sys, atexit\n"
               "atexit.register(lambda: print(sorted({'torch', 'ray', 'transformers', 'numpy'} & set(sys.modules))))\n"
               "from rlinf_cli.commands import main\nmain(prog_name='rlinf')")
    for arguments in (["export", "--help"], ["export", "a", "out"]):
        ended = subprocess.run([sys.executable, "-c", program, *arguments], cwd=folder, capture_output=True, text=True,
                               check=False)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.splitlines()[-1] == "[]"

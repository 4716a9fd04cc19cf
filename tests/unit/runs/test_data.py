"""The rows of a run over the built-in plugins: opened, and cut to what the policy can read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.errors import UsageError
from rlinf_cli.models.resolve import default_cache
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs import data
from rlinf_cli.runs.preflight import admit, prepare

PLUGINS = load_plugins(None)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLINF_CACHE", str(tmp_path / "cache"))


def config(*arguments):
    return resolve([], ["model.name=tiny:digits", *arguments], {}, PLUGINS)


def write(*rows, name="rows.jsonl"):
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"data.name={name}"


def sized(*sizes, name="rows.jsonl"):
    return write(*({"prompt": "1" * size, "answer": "1"} for size in sizes), name=name)


def admitted(*arguments):
    """The sources that are trained on, and what the user is told."""
    said: list[str] = []
    prepared = prepare(config(*arguments), PLUGINS)
    return admit(prepared, PLUGINS, said.append).stream, said


def test_long_prompts_are_left_out_and_counted():
    stream, said = admitted(sized(3, 20, 5, 30, 21), "rollout.max_prompt_tokens=20", "rollout.prompts=3")
    assert said == ["2 of 5 prompts are longer than 20 tokens and are left out (rows.jsonl)"]
    assert {item.id for number in range(2) for item in stream.batch(number)} == {
        f"{epoch}-{row}" for epoch in (0, 1) for row in (0, 1, 2)}


def test_nothing_is_said_when_all_fit():
    stream, said = admitted(sized(3, 20), "rollout.max_prompt_tokens=20")
    assert said == []
    assert stream.sources[0].kept is None


def test_long_prompts_can_be_refused():
    with pytest.raises(UsageError) as caught:
        admitted(sized(3, 5, 22, 30), "rollout.max_prompt_tokens=20", "data.overlong=error")
    assert str(caught.value) == (
        "rows.jsonl, line 3: the prompt has 22 tokens, more than rollout.max_prompt_tokens=20 allows (2 of 4 prompts are too "
        "long): raise it, or leave them out with data.overlong=drop")


def test_nothing_would_be_left():
    with pytest.raises(UsageError, match=r"^all 2 prompts of rows.jsonl are longer than rollout.max_prompt_tokens=4 tokens, "
                                         r"the shortest has 5: raise it$"):
        admitted(sized(5, 6), "rollout.max_prompt_tokens=4")


def test_each_source_of_a_mixture_is_looked_at():
    sized(3, 21, name="a.jsonl")
    sized(4, 5, name="b.jsonl")
    stream, said = admitted("data.name=a.jsonl + 0.5*b.jsonl + digits", "rollout.max_prompt_tokens=20")
    assert said == ["1 of 2 prompts is longer than 20 tokens and is left out (a.jsonl)"]
    assert [source.size for source in stream.sources] == [1, 2, None]


def test_it_is_found_out_once(monkeypatch):
    arguments = [sized(3, 25), "rollout.max_prompt_tokens=20"]
    first, said = admitted(*arguments)
    monkeypatch.setattr(data, "_measured", lambda *args: pytest.fail("measured again"))
    again, said_again = admitted(*arguments)
    assert said == said_again != []
    assert first.sources[0].kept == again.sources[0].kept == [0]


def test_without_a_place_for_the_cache_it_is_found_out_each_time(monkeypatch):
    arguments = [sized(3, 25), "rollout.max_prompt_tokens=20"]
    model = config(*arguments).model
    data.resolve_model(model.name, 0, PLUGINS)
    (default_cache() / "lengths").write_text("in the way")
    stream, _ = admitted(*arguments)
    assert stream.sources[0].kept == [0]


def test_what_decides_it_is_part_of_what_is_remembered(monkeypatch):
    measured = []
    original = data._measured
    monkeypatch.setattr(data, "_measured", lambda *args: measured.append(args) or original(*args))
    rows = [{"prompt": "1" * 9, "other": "1" * 30, "answer": "1"}, {"prompt": "1", "other": "2", "answer": "1"}]
    name = write(*rows)
    for arguments in (["rollout.max_prompt_tokens=8"], ["rollout.max_prompt_tokens=20"],
                      ["rollout.max_prompt_tokens=20", "data.prompt_key=other"]):
        admitted(name, *arguments)
    write({"prompt": "1", "answer": "1"})
    admitted(name, "rollout.max_prompt_tokens=8")
    assert len(measured) == 4


def test_generators_are_not_looked_at():
    prepared = prepare(config("data.name=digits"), PLUGINS)
    assert admit(prepared, PLUGINS, pytest.fail).stream.sources == prepared.stream.sources
    assert not default_cache().exists()


def test_messages_without_a_chat_template():
    name = write({"prompt": [{"role": "user", "content": "1"}], "answer": "1"})
    with pytest.raises(UsageError, match="has no chat template"):
        admitted(name)


def test_short_prompts_import_no_tokenizer():
    """Text that is surely short enough: whether the tokenizer is byte-level stands in its file."""
    sized(3, 5)
    code = ("import sys\nfrom rlinf_cli.config.load import resolve\nfrom rlinf_cli.plugins.loader import plugins\n"
            "from rlinf_cli.runs.preflight import admit, prepare\n"
            "config = resolve([], ['data.name=rows.jsonl', 'model.name=tiny:digits'], {}, plugins())\n"
            "admit(prepare(config, plugins()), plugins(), print)\n"
            "print([name for name in ('transformers', 'torch', 'ray') if name in sys.modules])")
    environment = {**os.environ, "RLINF_CACHE": str(Path("cache").resolve())}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "[]\n"


def test_the_fingerprint_is_the_same_whatever_is_left_out():
    arguments = [sized(3, 25), "rollout.max_prompt_tokens=20"]
    prepared = prepare(config(*arguments), PLUGINS)
    before = prepared.fingerprint
    assert admit(prepared, PLUGINS, lambda text: None).fingerprint == before
    assert prepare(config(sized(3, 24), *arguments[1:]), PLUGINS).fingerprint != before


def test_evaluation_takes_fresh_rows_of_a_generator_or_the_training_file():
    (trained,), (asked,) = (made(config("data.name=digits", "data.length=8"), PLUGINS, *more) for made, more in (
        (data.training_sources, [False]), (data.evaluation_sources, [])))
    assert {trained.row(i).text for i in range(50)}.isdisjoint(asked.row(i).text for i in range(50))
    (same,) = data.evaluation_sources(config(sized(3)), PLUGINS)
    assert same.row(0).text == "111"
    sized(2, name="held.jsonl")
    (other,) = data.evaluation_sources(config(sized(3), "eval.data=held.jsonl"), PLUGINS)
    assert other.row(0).text == "11"


def test_supervised_rows_have_targets():
    write({"question": "1+1?", "answer": "It is\n#### 2"})
    (source,) = data.training_sources(config("data.name=rows.jsonl"), PLUGINS, True)
    assert source.row(0).target == "It is\n#### 2"
    (digits,) = data.training_sources(config("data.name=digits"), PLUGINS, True)
    assert digits.row(0).target == digits.row(0).answer


def test_a_system_prompt_is_for_every_source():
    write({"prompt": "1+1?", "answer": "2"})
    sources = data.training_sources(config("data.name=rows.jsonl + digits", "data.system_prompt=Be brief."), PLUGINS, False)
    for source in sources:
        assert [message["role"] for message in source.row(0).messages] == ["system", "user"]

from __future__ import annotations

import json
import math

import pytest

from rlinf_cli.errors import RunError, UsageError
from rlinf_cli.runs.jsonl import StepLines, copy_lines, finite_or_none, read_lines


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lines.jsonl"


def fill(path, *steps):
    with StepLines(path, 0) as lines:
        for step in steps:
            lines.write(step, [{"x": step * 10}])


def steps(path):
    return [line["step"] for line in read_lines(path)]


def test_lines_come_back_in_order(path):
    fill(path, 1, 2, 3)
    assert list(read_lines(path)) == [{"step": step, "x": step * 10} for step in (1, 2, 3)]


def test_each_line_is_in_the_file_at_once(path):
    lines = StepLines(path, 0)
    lines.write(1, [{"x": 1}, {"x": 2}])
    assert path.read_text() == '{"step": 1, "x": 1}\n{"step": 1, "x": 2}\n'
    lines.close()


def test_no_file_is_no_lines(path):
    assert list(read_lines(path)) == []


def test_going_on_after_a_step_cuts_later_lines(path):
    fill(path, 1, 2, 3, 4)
    with StepLines(path, 2) as lines:
        lines.write(3, [{"x": 99}])
    assert [line["x"] for line in read_lines(path)] == [10, 20, 99]


def test_going_on_after_the_last_step_cuts_nothing(path):
    fill(path, 1, 2)
    before = path.read_bytes()
    StepLines(path, 2).close()
    assert path.read_bytes() == before


def test_starting_anew_empties_the_file(path):
    fill(path, 1, 2)
    StepLines(path, 0).close()
    assert path.read_bytes() == b""


@pytest.mark.parametrize("torn", [b'{"step": 3, "x"', b'{"step": 3, "x": 30}', b"\x00" * 64, b'{"step": 3}x\n', b"3\n"])
def test_a_torn_last_line_is_not_read_and_is_cut(path, torn):
    fill(path, 1, 2)
    with open(path, "ab") as file:
        file.write(torn)
    assert steps(path) == [1, 2]
    with StepLines(path, 2) as lines:
        lines.write(3, [{"x": 1}])
    assert steps(path) == [1, 2, 3]


def test_every_length_of_a_crash(path):
    fill(path, 1, 2, 3)
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == 10]
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        StepLines(path, 3).close()
        assert path.stat().st_size == max([0, *(end for end in ends if end <= size)])


def test_a_damaged_line_amid_others_is_named(path):
    fill(path, 1, 2, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"{oops}\n" + lines[2])
    with pytest.raises(UsageError, match=r"line 2 of .*lines.jsonl is damaged"):
        list(read_lines(path))
    with pytest.raises(UsageError, match="line 2 of"):
        StepLines(path, 3)
    assert b"oops" in path.read_bytes()


def test_steps_cannot_go_back(path):
    with StepLines(path, 4) as lines:
        lines.write(5, [{}])
        lines.write(5, [{}])
        with pytest.raises(ValueError, match=r"step 4 comes after step 5 in .*lines.jsonl"):
            lines.write(4, [{}])
        with pytest.raises(ValueError, match="step 3"):
            StepLines(path, 4).write(3, [{}])
    assert steps(path) == []


def test_text_that_is_no_unicode_survives(path):
    text = "数 é \ud800 \u2028 \x1b[31m \n"
    with StepLines(path, 0) as lines:
        lines.write(1, [{"text": text}])
    (line,) = read_lines(path)
    assert line["text"] == text
    assert "数 é" in path.read_text()


def test_a_full_disk_tears_no_line(path, file_limit):
    with StepLines(path, 0) as lines:
        lines.write(1, [{"x": "a" * 50}])
        before = path.read_bytes()
        with file_limit(100), pytest.raises(RunError, match=r"cannot write .*lines.jsonl: file too large"):
            lines.write(2, [{"x": "b" * 50}])
        assert path.read_bytes() == before
        lines.write(3, [{"x": "c"}])
    assert steps(path) == [1, 3]


def test_a_full_file_system(small_disk):
    with StepLines(small_disk / "lines.jsonl", 0) as lines:
        for step in (1, 2, 3):
            lines.write(step, [{"x": "a" * 300_000}])
        with pytest.raises(RunError, match="no space left on device"):
            lines.write(4, [{"x": "a" * 300_000}])
    assert steps(small_disk / "lines.jsonl") == [1, 2, 3]


def test_a_place_that_cannot_be_written(tmp_path):
    with pytest.raises(RunError, match=r"cannot write .*/no/lines.jsonl: no such file or directory"):
        StepLines(tmp_path / "no" / "lines.jsonl", 0)


@pytest.mark.parametrize(("value", "expected"), [
    (1, 1.0), (0.5, 0.5), (math.nan, None), (math.inf, None), (-math.inf, None)])
def test_json_has_no_word_for_what_is_not_finite(value, expected):
    assert finite_or_none(value) == expected
    assert "NaN" not in json.dumps(finite_or_none(value))


@pytest.mark.parametrize(("last", "expected"), [(0, []), (2, [1, 2, 2]), (3, [1, 2, 2, 4][:3]), (9, [1, 2, 2, 4])])
def test_a_file_may_begin_as_another_one_did(path, tmp_path, last, expected):
    fill(path, 1, 2, 2, 4)
    with path.open("a") as file:
        file.write('{"step": 5, "x')
    copy_lines(path, tmp_path / "copy.jsonl", last)
    assert steps(tmp_path / "copy.jsonl") == expected
    assert path.read_bytes().startswith((tmp_path / "copy.jsonl").read_bytes())


def test_where_there_is_no_file_none_is_begun(path, tmp_path):
    copy_lines(path, tmp_path / "copy.jsonl", 7)
    assert not (tmp_path / "copy.jsonl").exists()


def test_a_file_that_is_there_is_not_replaced(path, tmp_path):
    fill(path, 1)
    (tmp_path / "copy.jsonl").write_text("mine")
    with pytest.raises(FileExistsError):
        copy_lines(path, tmp_path / "copy.jsonl", 7)


def test_a_file_that_is_removed_meanwhile_ends_the_run(path):
    with StepLines(path, 0) as lines:
        lines.write(1, [{"x": 1}])
        path.unlink()
        with pytest.raises(RunError, match=r"cannot write .*lines.jsonl: no such file or directory"):
            lines.write(2, [{"x": 2}])

from __future__ import annotations

import io
import os
import pty
import re
import sys
import time

import pytest

from rlinf_cli.runs import progress as module
from rlinf_cli.runs.live import LiveProgress
from rlinf_cli.runs.progress import Pace, PlainProgress, is_interactive, progress, step_line

METRICS = {"reward/mean": 0.63, "throughput/tokens_per_s": 14_900.0, "timing/step_s": 0.12, "timing/rollout_s": 0.06,
           "timing/actor_s": 0.05, "timing/idle_s": 0.01}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves when told to."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def forward(seconds: float) -> None:
        now[0] += seconds

    return forward


def plain(total: int, steps, forward=lambda seconds: None, seconds: float = 0.1) -> list[str]:
    stream = io.StringIO()
    with progress(total, 1, stream) as shown:
        for step in steps:
            forward(seconds)
            shown.step(step, METRICS)
    return stream.getvalue().splitlines()


def shown_steps(lines: list[str]) -> list[int]:
    return [int(line.split()[1].split("/")[0]) for line in lines]


# --- without a terminal


def test_a_plain_line():
    assert step_line(41, 100, METRICS, 9.0) == "  step 41/100  reward 0.63  tokens/s 14.9k  step 0.12 s  eta 0:00:09"


@pytest.mark.parametrize(("metrics", "line"), [
    ({}, "  step 1/2"),
    ({"eval/sums/mean@4": 0.625, "eval/sums/pass@4": 1.0}, "  step 1/2  sums mean@4 0.62"),
    ({"reward/mean": float("nan")}, "  step 1/2  reward -"),
    ({"reward/mean": -1.5, "timing/step_s": 61.0}, "  step 1/2  reward -1.50  step 61 s"),
])
def test_what_is_not_known_is_left_out(metrics, line):
    assert step_line(1, 2, metrics, None) == line


def test_messages_and_phases_are_lines_with_a_label_column():
    stream = io.StringIO()
    with progress(100, 1, stream) as shown:
        shown.message("run", "runs/a")
        shown.message("", "more of it")
        shown.phase("starting Ray")
        shown.message("plan", "[bold]not markup[/bold]\x1b[31m\nno second line")
    assert stream.getvalue() == ("run        runs/a\n           more of it\n  starting Ray\n"
                                 "plan       [bold]not markup[/bold] [31m no second line\n")


def test_a_quick_run_shows_the_first_the_last_and_every_tenth(clock):
    assert shown_steps(plain(100, range(1, 101), clock, 0.01)) == [1, *range(10, 101, 10)]


def test_a_slow_run_shows_every_step(clock):
    assert shown_steps(plain(1000, range(1, 8), clock, 15.0)) == list(range(1, 8))


def test_otherwise_a_line_every_ten_seconds(clock):
    assert shown_steps(plain(100_000, range(1, 101), clock, 1.0)) == [1, *range(11, 101, 10), 100]


def test_an_evaluation_is_always_shown(clock):
    stream = io.StringIO()
    with progress(100, 1, stream) as shown:
        for step in range(31):
            clock(0.01)
            shown.step(step, {"eval/x/mean@1": 0.5} if step % 6 == 0 else METRICS)
    assert shown_steps(stream.getvalue().splitlines()) == [0, 6, 10, 12, 18, 20, 24, 30]


def test_the_last_step_of_an_interrupted_run_is_shown(clock):
    assert shown_steps(plain(100, range(1, 16), clock)) == [1, 10, 15]


def test_the_first_step_of_a_resumed_run_is_shown(clock):
    assert shown_steps(plain(100, range(43, 48), clock)) == [43, 47]


def test_fewer_steps_than_lines(clock):
    assert shown_steps(plain(3, range(1, 4), clock)) == [1, 2, 3]


def test_nothing_is_held_back_in_a_buffer(tmp_path):
    with open(tmp_path / "log", "w") as file, progress(100, 1, file) as shown:
        shown.phase("starting Ray")
        assert (tmp_path / "log").read_text() == "  starting Ray\n"


def test_no_terminal_library_is_imported_for_plain_lines(python):
    process = python("import sys\nfrom rlinf_cli.runs.progress import progress\n"
                     "with progress(2, 1, sys.stderr, terminal=False) as p: p.step(1, {})\n"
                     "print('rich' in sys.modules)")
    assert process.communicate(timeout=20)[0] == "False\n"


# --- which of the two


@pytest.mark.parametrize(("environment", "expected"), [
    ({"TERM": "xterm"}, True),
    ({"TERM": "xterm", "CI": ""}, True),
    ({"TERM": "xterm", "CI": "false"}, True),
    ({"TERM": "xterm", "CI": "true"}, False),
    ({"TERM": "xterm", "CI": "1"}, False),
    ({"TERM": "dumb"}, False),
    ({}, False),
])
def test_a_live_picture_needs_a_person_and_a_capable_terminal(environment, expected):
    assert is_interactive(Terminal(), environment) is expected
    assert is_interactive(io.StringIO(), environment) is False


def test_the_environment_decides_unless_told(monkeypatch):
    assert isinstance(progress(1, 1, Terminal()), LiveProgress)
    assert isinstance(progress(1, 1, io.StringIO()), PlainProgress)
    assert isinstance(progress(1, 1, Terminal(), terminal=False), PlainProgress)
    assert isinstance(progress(1, 1, io.StringIO(), terminal=True), LiveProgress)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(progress(1, 1, Terminal()), PlainProgress)


# --- pace


def test_pace_is_that_of_the_last_steps(clock):
    pace = Pace(100)
    assert pace.left(0) is None
    pace.tick({"timing/step_s": 5.0})
    assert pace.left(1) == pytest.approx(99 * 5.0)
    for _ in range(40):
        clock(2.0)
        pace.tick({"timing/step_s": 1.0})
    assert pace.left(41) == pytest.approx(59 * 2.0)


def test_pace_without_a_first_step_time(clock):
    pace = Pace(10)
    pace.tick({})
    assert pace.left(1) is None
    clock(3.0)
    pace.tick({})
    assert pace.left(2) == pytest.approx(24.0)


# --- on a terminal


def live(first_step: int = 1, last: int = 3, total: int = 10, samples=()) -> str:
    stream = Terminal()
    with progress(total, first_step, stream) as shown:
        shown.message("run", "runs/a")
        shown.phase("starting Ray")
        for step in range(first_step, last + 1):
            shown.step(step, METRICS, samples)
    return stream.getvalue()


def last_picture(text: str) -> list[str]:
    """Lines drawn after the cursor last went to the beginning of the picture."""
    drawn = re.split(r"\x1b\[1A\x1b\[2K|\r\x1b\[2K", text)[-1]
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn).splitlines()


def test_the_last_picture_stays(sample):
    picture = last_picture(live(samples=[sample(prompt="not shown"), sample(), sample(prompt="d30=", reward=0.0)]))
    assert picture[0].startswith("  step 3/10  ━━━━━━━━━╸")
    assert picture[0].rstrip().endswith("reward 0.63 ▄▄▄   tokens/s 14.9k")
    assert picture[1].rstrip() == "  rollout ██████████ 50 %   actor ████████▍ 42 %   idle █▋ 8 %"
    assert picture[2].split("   ")[0] == "  prompt d47=  answer 7  reward 1.00"
    assert "prompt d30=  answer 7  reward 0.00" in picture[2]
    assert len(picture) == 3


def test_samples_stay_until_there_are_new_ones(sample):
    stream = Terminal()
    with progress(10, 1, stream) as shown:
        shown.step(1, METRICS, [sample(prompt="kept")])
        shown.step(2, METRICS)
    assert "kept" in last_picture(stream.getvalue())[2]


def test_messages_scroll_away_above_the_picture():
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", live())
    assert text.startswith("run        runs/a\n")
    assert text.count("run        runs/a") == 1


def test_a_long_message_hangs_below_its_label(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    with progress(1, 1, stream) as shown:
        shown.message("plan", "rollout | actor on cpu:0 | cpu:1 [see runs/a-very-long-name-that-does-not-fit-at-all]")
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue()).splitlines()
    assert lines[:3] == ["plan       rollout | actor on cpu:0 |", "           cpu:1 [see",
                         "           runs/a-very-long-name-that-does-not-fit-at-all]"]


def test_phases_vanish_when_no_step_came():
    stream = Terminal()
    with progress(10, 1, stream) as shown:
        shown.phase("starting Ray")
        time.sleep(0.3)
    assert "starting Ray" in stream.getvalue()
    assert "".join(last_picture(stream.getvalue())).strip() == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_closing_twice_shows_nothing_twice(terminal):
    stream = Terminal()
    with progress(10, 1, stream, terminal) as shown:
        shown.step(1, METRICS)
        shown.step(2, METRICS)
        shown.close()
        before = stream.getvalue()
    assert stream.getvalue() == before


def test_the_cursor_comes_back():
    text = live()
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_colour_unless_it_is_not_wanted(monkeypatch):
    colours = re.compile(r"\x1b\[[0-9;]*\b3[0-7]m")
    assert colours.search(live())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours.search(live())
    assert "step 3/10" in live()


def test_a_step_does_not_wait_for_the_terminal(sample):
    samples = [sample() for _ in range(64)]
    with progress(20_000, 1, Terminal()) as shown:
        shown.step(1, METRICS, samples)
        began = time.process_time()
        for step in range(2, 2002):
            shown.step(step, METRICS, samples)
        each = (time.process_time() - began) / 2000
    assert each < 0.5e-3


def test_pictures_are_few(sample, monkeypatch):
    drawn = []
    monkeypatch.setattr(LiveProgress, "_draw", lambda self, real=LiveProgress._draw: drawn.append(1) or real(self))
    with progress(20_000, 1, Terminal()) as shown:
        ends = time.monotonic() + 1.0
        step = 0
        while time.monotonic() < ends:
            step += 1
            shown.step(step, METRICS, [sample()])
            time.sleep(0.001)
    assert step > 100
    assert len(drawn) <= 8 + 5


def test_a_real_terminal_shows_prints_of_others_above(python, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, time\nfrom rlinf_cli.runs.progress import progress\n"
        "with progress(3, 1, sys.stderr) as p:\n"
        "    p.step(1, {'reward/mean': 0.5})\n"
        "    print('a warning', file=sys.stderr)\n"
        "    print('a result')\n"
        "    p.step(3, {'reward/mean': 0.75})\n")
    pid, descriptor = pty.fork()
    if pid == 0:
        out = os.open(tmp_path / "stdout", os.O_WRONLY | os.O_CREAT)
        os.dup2(out, 1)
        os.execv(sys.executable, [sys.executable, str(script)])
    written = b""
    try:
        while chunk := os.read(descriptor, 65536):
            written += chunk
    except OSError:  # the terminal's other end is gone
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    text = written.decode()
    assert (tmp_path / "stdout").read_text() == "a result\n"
    assert "a warning" in text
    assert last_picture(text)[0].startswith("  step 3/3")


def test_a_terminal_without_unicode_gets_plain_characters():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors="backslashreplace", write_through=True)
    with progress(10, 1, stream, terminal=True) as shown:
        shown.phase("starting Ray")
        shown.step(5, METRICS)
    text = raw.getvalue().decode("ascii")
    assert "\\u" not in text
    assert "============>" in text


def test_the_label_column_is_wide_enough_for_all_labels():
    assert module.LABEL_WIDTH == 11
    assert max(map(len, ("run", "device", "plan", "done", "next", "exported", "directory"))) < module.LABEL_WIDTH


def test_without_rewards_the_loss_is_told():
    assert module.step_line(3, 10, {"actor/loss": 0.12345}, None) == "  step 3/10  loss 0.123"
    assert "loss" not in module.step_line(3, 10, {"actor/loss": 0.1, "reward/mean": 0.5}, None)


def test_the_loss_of_a_run_without_rewards_is_shown_live(sample):
    stream = Terminal()
    with progress(10, 1, stream) as shown:
        shown.step(1, {"actor/loss": 0.5}, [sample()])
        shown.step(2, {"actor/loss": 0.25}, [sample()])
    picture = "\n".join(last_picture(stream.getvalue()))
    assert "loss 0.25" in picture
    assert "reward" not in picture

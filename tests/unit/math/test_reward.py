"""Mathematical equality, as far as this reward decides it; math-verify decides the rest."""

import logging
import threading

import pytest

from rlinf_math import register_rewards
from rlinf_math.config import MathConfig
from rlinf_math.reward import Math, last_boxed


@pytest.fixture(scope="module")
def auto():
    return Math(MathConfig())


@pytest.fixture(scope="module")
def boxed():
    return Math(MathConfig(extract="boxed"))


@pytest.mark.parametrize(("response", "answer"), [
    (r"so \boxed{\frac{1}{2}}", "1/2"), ("The answer is 0.5", "1/2"), (r"\boxed{1/2}", "0.5"), ("0.5", r"\frac{1}{2}"),
    (r"\boxed{\frac12}", r"\dfrac{2}{4}"), (r"\boxed{50\%}", "50%"), (r"\boxed{50\%}", "0.5"), (r"\boxed{1234}", "1,234"),
    (r"\boxed{\sqrt{12}}", r"2\sqrt{3}"), (r"\boxed{2\sqrt 3}", r"\sqrt{12}"), (r"\boxed{\frac{\pi}{2}}", r"\pi/2"),
    (r"\boxed{\{3,2,1\}}", r"\{1,2,3\}"), (r"\boxed{[1,2)}", "[1,2)"), (r"\boxed{(-\infty, 3)}", r"(-\infty,3)"),
    (r"\boxed{(1,2)}", "(1,2)"), (r"$(1,2,3)$", "(1, 2, 3)"), (r"\boxed{(x+1)^2}", "x^2+2x+1"), (r"\boxed{5}", "x=5"),
    (r"\boxed{\begin{pmatrix}1&2\end{pmatrix}}", r"\begin{pmatrix}1&2\end{pmatrix}"), (r"\boxed{B}", "B"),
    (r"\boxed{\text{Tuesday}}", r"\text{Tuesday}"), (r"\boxed{10}", r"10\text{ cm}"), ("x is -3", "-3"), ("42", "$42$"),
    (r"\boxed{7}", r"we get \boxed{7}"), (r"first \boxed{3}, then \boxed{4}", "4"), ("I think 41, no, 42", "42"),
])
def test_equal(auto, sample, response, answer):
    assert auto.score(sample(response, answer)) == {"reward": 1.0, "found": 1.0}


@pytest.mark.parametrize(("response", "answer"), [
    (r"\boxed{[1,2]}", "[1,2)"), (r"\boxed{41} or so 42", "42"), (r"first \boxed{4}, then \boxed{3}", "4"),
    (r"\boxed{1/3}", "1/2"), (r"\boxed{(2,1)}", "(1,2,3)"), (r"\boxed{x+1}", "x-1"), ("0.333", "1/3"),
])
def test_not_equal(auto, sample, response, answer):
    assert auto.score(sample(response, answer)) == {"reward": 0.0, "found": 1.0}


@pytest.mark.parametrize("response", ["", "no idea", r"\boxed{}"])
def test_nothing_said(auto, sample, response):
    assert auto.score(sample(response, "7")) == {"reward": 0.0, "found": 0.0}


def test_only_what_is_in_a_box(boxed, sample):
    assert boxed.score(sample("it is 7", "7")) == {"reward": 0.0, "found": 0.0}
    assert boxed.score(sample(r"it is \boxed{7}", "7")) == {"reward": 1.0, "found": 1.0}


def test_decimal_places(sample):
    assert Math(MathConfig(digits=2)).score(sample("0.333", "0.334"))["reward"] == 1
    assert Math(MathConfig(digits=4)).score(sample("0.333", "0.334"))["reward"] == 0


def test_what_is_no_answer_is_no_zero(auto, sample):
    with pytest.raises(ValueError, match=r"no answer, which reward 'math' compares with \(see data\.answer_key\)"):
        auto.score(sample("7", None))
    with pytest.raises(ValueError, match="the answer '' is no expression that math-verify can read"):
        auto.score(sample("7", ""))


@pytest.mark.parametrize(("text", "content"), [
    (r"\boxed{7}", "7"), (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"), (r"\boxed{a} \boxed{b}", "b"), (r"\boxed{a} \boxed{b", "a"),
    (r"\boxed{}", ""), (r"\boxed{\{1\}}", r"\{1\}"), (r"\boxed 7", None), ("7", None), (r"\boxed{", None), ("", None),
])
def test_the_last_box(text, content):
    assert last_boxed(text) == content


def test_it_needs_no_signals_and_warns_of_nothing(auto, sample, caplog):
    found = []
    with caplog.at_level(logging.INFO):
        thread = threading.Thread(target=lambda: found.append(Math(MathConfig()).score(sample(r"\boxed{2^3}", "8"))))
        thread.start()
        thread.join()
    assert found == [{"reward": 1.0, "found": 1.0}]
    assert caplog.records == []


def test_the_extension():
    (extension,) = register_rewards()
    assert (extension.name, extension.requires, extension.extra) == ("math", ("math-verify",), "math")
    assert (extension.load(), extension.load_config()) == (Math, MathConfig)

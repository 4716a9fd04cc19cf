from typing import Any, Literal

import pytest

from rlinf_cli.config.convert import convert, needed, type_name


@pytest.mark.parametrize(("annotation", "value", "result"), [
    (int, "5", 5), (int, "-5", -5), (int, 5, 5), (int, 5.0, 5), (int, "1e2", 100),
    (int, "9007199254740993", 9007199254740993),
    (float, "1e-3", 0.001), (float, 2, 2.0), (float, "2", 2.0),
    (bool, "True", True), (bool, "off", False), (bool, "1", True), (bool, 0, False), (bool, False, False),
    (str, "x", "x"), (str, 5, "5"), (str, True, "true"),
    (list[str], ["a", 1], ["a", "1"]), (list[int], [], []), (list[list[int]], [["1"], []], [[1], []]),
    (tuple[float, float], ["1", 2], (1.0, 2.0)), (tuple[int, ...], ["1", "2", "3"], (1, 2, 3)),
    (int | None, None, None), (int | None, "3", 3),
    (int | str, "3", 3), (int | str, "x", "x"), (str | int, "3", "3"),
    (float | Literal["auto"], "auto", "auto"), (float | Literal["auto"], "0.5", 0.5),
    (Literal["a", "b"], "b", "b"), (Literal[1, 2], "2", 2),
])
def test_a_value_becomes_the_type(annotation, value, result):
    typed = convert(annotation, value)
    assert typed == result
    assert type(typed) is type(result)


@pytest.mark.parametrize(("annotation", "value", "words"), [
    (int, "x", "an integer is needed"), (int, True, "an integer is needed"), (int, "inf", "an integer is needed"),
    (int, [1], "an integer is needed"), (int, 1.5, "an integer is needed"), (int, "", "an integer is needed"),
    (float, "x", "a number is needed"), (float, False, "a number is needed"),
    (float, "nan", "a finite number is needed"), (float, "-inf", "a finite number is needed"),
    (bool, "2", "true or false is needed"), (bool, [], "true or false is needed"),
    (str, ["a"], "text is needed"), (str, {"a": 1}, "text is needed"),
    (str, None, "null is not allowed, text is needed"),
    (list[int], "1", "a list of integers, as in [a, b], is needed"), (list[int], {"a": 1}, "a list of integers"),
    (list[int], ["x"], "an integer is needed"), (list[int], None, "a list of integers, as in [a, b], is needed"),
    (tuple[int, int], [1], "a list of 2 values (an integer, an integer) is needed, there are 1"),
    (int | None, "x", "an integer or null is needed"), (Literal["a", "b"], "c", "must be one of a, b"),
])
def test_what_does_not_fit_says_what_is_needed(annotation, value, words):
    with pytest.raises(ValueError, match=r"needed|must be") as caught:
        convert(annotation, value)
    assert words in str(caught.value)


@pytest.mark.parametrize(("annotation", "name"), [
    (int, "int"), (list[str], "list[str]"), (float | None, "float | null"), (Literal["a", "b"], "a | b"),
    (tuple[float, float], "list[float, float]"), (tuple[int, ...], "list[int]"),
])
def test_types_have_names(annotation, name):
    assert type_name(annotation) == name


@pytest.mark.parametrize("annotation", [dict[str, int], set, Any, bytes, list[bytes], int | bytes])
def test_other_types_are_refused(annotation):
    with pytest.raises(TypeError, match="a key cannot have the type"):
        needed(annotation)

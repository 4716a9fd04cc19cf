import pytest

from rlinf_cli.config.expression import Term, terms
from rlinf_cli.errors import UsageError


@pytest.mark.parametrize(("text", "expected"), [
    ("math", [("math", 1)]),
    ("math + 0.2*format", [("math", 1), ("format", 0.2)]),
    ("2*math  +  1e-1 * format + .5*length", [("math", 2), ("format", 0.1), ("length", 0.5)]),
    ("0.5*math", [("math", 0.5)]),
    ("a.jsonl + 3*openai/gsm8k", [("a.jsonl", 1), ("openai/gsm8k", 3)]),
    ("my.py:score + 2.*pkg.mod:f", [("my.py:score", 1), ("pkg.mod:f", 2)]),
    ("a+b.jsonl + c.jsonl", [("a+b.jsonl", 1), ("c.jsonl", 1)]),
    ("data/*.jsonl", [("data/*.jsonl", 1)]),
    ("my file.jsonl", [("my file.jsonl", 1)]),
    ("reinforce++", [("reinforce++", 1)]),

    ("\n  math\n  + format\n", [("math", 1), ("format", 1)]),
])
def test_names_and_weights(text, expected):
    assert terms(text) == [Term(name, weight) for name, weight in expected]


@pytest.mark.parametrize(("text", "words"), [
    ("", "a name is missing"),
    ("math +", "a name is missing: parts are written NAME + WEIGHT*NAME, as in math + 0.2*format"),
    ("+ math", "a name is missing"),
    ("math + + format", "a name is missing"),
    ("math + 0.5*", "a name is missing"),
    ("0.5*", "a name is missing"),
    ("math + 0*format", "'format' has the weight 0: a weight is a finite number above 0"),
    ("-0.5*math", "'math' has the weight -0.5: a weight is a finite number above 0"),
    ("1e999*math", "'math' has the weight 1e999: a weight is a finite number above 0"),
    ("math + 2*math", "'math' is there twice: name it once"),
])
def test_what_is_wrong_is_one_sentence(text, words):
    with pytest.raises(UsageError) as caught:
        terms(text)
    assert words in str(caught.value)

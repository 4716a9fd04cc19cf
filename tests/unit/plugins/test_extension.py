from __future__ import annotations

import sys

import pytest

from rlinf_cli.errors import PluginError
from rlinf_cli.plugins.extension import Extension, describe, resolve


@pytest.mark.parametrize("name", ["", "-x", "a b", "a:b", "a.b", "ä"])
def test_a_name_is_letters_digits_and_a_few_signs(name):
    with pytest.raises(ValueError, match="letters, digits"):
        Extension(name, target="m:A")


@pytest.mark.parametrize("name", ["grpo", "4bit", "dr-grpo", "my_algorithm", "reinforce++"])
def test_names_that_are_allowed(name):
    assert Extension(name, target="m:A").name == name


@pytest.mark.parametrize("reference", ["", "m", "m:", ":A", "m.A", "m/x.py:A", "m:A:B"])
def test_a_target_is_a_module_and_an_attribute(reference):
    with pytest.raises(ValueError, match="is not 'module:attribute'"):
        Extension("x", target=reference)


def test_a_config_is_checked_like_a_target_but_may_be_left_out():
    assert Extension("x", target="m:A").load_config() is None
    with pytest.raises(ValueError, match="config 'm' is not 'module:attribute'"):
        Extension("x", target="m:A", config="m")


def test_requires_is_a_tuple_and_not_one_string():
    with pytest.raises(ValueError, match="requires 'textblob' is not a tuple"):
        Extension("x", target="m:A", requires="textblob")


@pytest.mark.parametrize("requirement", ["torch>=2", "a[b]", "a b", ""])
def test_requires_holds_names_without_versions_and_extras(requirement):
    with pytest.raises(ValueError, match="in requires is not a distribution name"):
        Extension("x", target="m:A", requires=(requirement,))


def test_an_extension_is_hashable_and_compares_by_value():
    one, other = (Extension("x", target="m:A", preset={"a": 1}) for _ in range(2))
    assert one == other
    assert len({one, other}) == 1
    assert one != Extension("x", target="m:A", preset={"a": 2})


def test_load_returns_the_target_and_its_config():
    extension = Extension("x", target="collections:OrderedDict.fromkeys", config="fractions:Fraction")
    assert extension.load()("ab") == {"a": None, "b": None}
    assert extension.load_config().__name__ == "Fraction"


@pytest.mark.parametrize(
    ("reference", "cause"),
    [
        ("no_such_module:A", "No module named 'no_such_module'"),
        ("fractions:Fractoin", "AttributeError: module 'fractions' has no attribute 'Fractoin'"),
        ("failing_target:A", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_target_that_does_not_load_is_a_plugin_error_with_the_cause(site, reference, cause):
    site.add("failing", {}, failing_target="1 / 0")
    with pytest.raises(PluginError) as caught:
        Extension("x", target=reference).load()
    assert str(caught.value) == f"the target '{reference}' of extension 'x' did not load: {cause}"
    assert caught.value.exit_code == 3
    assert caught.value.__cause__ is not None


def test_a_config_that_does_not_load_says_so():
    with pytest.raises(PluginError, match="the config 'no_such:A' of extension 'x' did not load: No module named"):
        Extension("x", target="m:A", config="no_such:A").load_config()


def test_resolve_takes_a_module_alone():
    assert resolve("json") is sys.modules["json"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ImportError("cannot import\n  name 'x'"), "cannot import name 'x'"),
        (ImportError(), "ImportError"),
        (PluginError("already a sentence"), "already a sentence"),
        (ValueError("two\nlines"), "ValueError: two lines"),
        (ValueError(), "ValueError"),
        (SystemExit(2), "sys.exit(2) was called"),
    ],
)
def test_an_exception_is_described_in_one_line(error, told):
    assert describe(error) == told

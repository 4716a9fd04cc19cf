from pathlib import Path

import pytest

from rlinf_cli.config.errors import ConfigError
from rlinf_cli.config.source import display, read_all, read_file, read_override


def lines(call, *arguments):
    with pytest.raises(ConfigError) as caught:
        call(*arguments)
    return str(caught.value).splitlines()


class TestFiles:
    def test_values_are_text_with_the_line_they_stood_on(self, write):
        file = write("# a comment\nsteps: 100\nrollout:\n  stop: [a, 'b']\n  top_k:   # later\n    5\n")
        given = [(one.key, one.value, one.origin) for one in read_file(Path(file))]
        assert given == [("steps", "100", "run.yaml:2"), ("rollout.stop", ["a", "b"], "run.yaml:4"),
                         ("rollout.top_k", "5", "run.yaml:5")]

    def test_a_key_may_be_dotted_at_any_depth(self, write):
        given = read_file(Path(write("rollout.prompts: 4\na:\n  b.c: 1\n")))
        assert [one.key for one in given] == ["rollout.prompts", "a.b.c"]

    def test_null_words_are_null_unless_quoted(self, write):
        given = read_file(Path(write("a: null\nb: ~\nc:\nd: 'null'\ne: ''\n")))
        assert [one.value for one in given] == [None, None, None, "null", ""]

    @pytest.mark.parametrize("text", ["", "# only a comment\n", "{}"])
    def test_an_empty_one_gives_nothing(self, write, text):
        assert read_file(Path(write(text))) == []

    @pytest.mark.parametrize("section", ["rollout:", "rollout: {}", "rollout: null"])
    def test_an_empty_section_changes_nothing(self, config, write, section):
        assert config(files=[write(f"{section}\n")]).rollout.group_size == 8

    @pytest.mark.parametrize(("text", "words"), [
        ("a: 1\nb: [1, 2\n", "run.yaml:3:1: not valid YAML: while parsing a flow sequence expected ',' or ']', but got "
                             "'<stream end>'"),
        ("steps: 1\n\tseed: 2\n", "run.yaml:2:1: not valid YAML: while scanning for the next token found character "
                                  "'\\t' that cannot start any token"),
        ("a: b: c\n", "run.yaml:1:5: not valid YAML: mapping values are not allowed here"),
        ("a: 1\n---\nb: 2\n", "run.yaml:2:1: not valid YAML: expected a single document in the stream but found "
                              "another document"),
        ("- a\n- b\n", "run.yaml: a mapping is needed, keys with values as in 'steps: 100'; this is a list"),
        ("steps\n", "run.yaml: a mapping is needed, keys with values as in 'steps: 100'; this is a single value"),
        ("steps: 1\nseed: 2\nsteps: 3\n", "run.yaml:3: 'steps' is there twice, first at run.yaml:1: keep one of them"),
        ("rollout:\n  prompts: 1\nrollout.prompts: 3\n",
         "run.yaml:3: 'rollout.prompts' is there twice, first at run.yaml:2: keep one of them"),
        ("log: {samples: 1}\nlog: {samples: 2}\n",
         "run.yaml:2: 'log' is there twice, first at run.yaml:1: keep one of them"),
        ("steps: !!python/object:os.system x\n",
         "run.yaml:1: the tag tag:yaml.org,2002:python/object:os.system is not allowed: give a plain value"),
        ("rollout: !thing {prompts: 1}\n", "run.yaml:1: the tag !thing is not allowed: give a plain value"),
        ("[a]: 1\n", "run.yaml:1: a key must be a text"),
    ])
    def test_a_bad_one_is_told_with_its_place(self, write, text, words):
        assert lines(read_file, Path(write(text))) == [words]

    def test_bytes_that_are_no_text(self, write):
        file = Path(write(""))
        file.write_bytes(b"steps: \xff\xfe\n")
        assert lines(read_file, file) == ["run.yaml: not UTF-8 text, so no YAML file"]

    def test_control_signs(self, write):
        (line,) = lines(read_file, Path(write("steps: \x01\n")))
        assert line.startswith("run.yaml: not valid YAML: ")

    def test_a_directory(self, tmp_path):
        assert lines(read_file, tmp_path) == [f"{tmp_path}: cannot be read: Is a directory"]

    @pytest.mark.parametrize("wrong", ["confs/grpo-digts.yaml", "grpo-digits", "configs/grpo-digits.yml"])
    def test_a_missing_one_with_the_nearest_recipe(self, write, wrong):
        write("", "configs/grpo-digits.yaml")
        assert lines(read_file, Path(wrong)) == [
            f"no such file: {wrong}. Did you mean 'configs/grpo-digits.yaml'?"]

    def test_a_missing_one_with_the_nearest_beside_it(self, write):
        write("", "mine/first.yaml")
        assert lines(read_file, Path("mine/frist.yaml")) == [
            "no such file: mine/frist.yaml. Did you mean 'mine/first.yaml'?"]

    def test_all_bad_ones_are_told(self, write):
        bad = write("a: [", "bad.yaml")
        first, second = lines(read_all, [Path(bad), Path("none.yaml")], ["x"], {})
        assert first.startswith("bad.yaml:1:")
        assert second == "no such file: none.yaml."


class TestArguments:
    @pytest.mark.parametrize(("argument", "value"), [
        ("a=1", "1"), ("a=", ""), ("a=b=c", "b=c"), ("a= b ", "b"), ("a=~", None), ("a=null", None),
        ("a='null'", "null"), ("a=[1, [b], null]", ["1", ["b"], None]), ("a=x: y", "x: y"), ("a=#1", "#1"),
        ("a=*x", "*x"), ('a="x\\ny"', "x\ny"),
    ])
    def test_are_read(self, argument, value):
        (given,) = read_override(argument)
        assert (given.key, given.value, given.origin) == ("a", value, "the command line")

    def test_a_mapping_gives_several(self):
        assert [(one.key, one.value) for one in read_override("a={b: 1, c: {d: [2]}}")] == [
            ("a.b", "1"), ("a.c.d", ["2"])]

    @pytest.mark.parametrize(("argument", "words"), [
        ("steps", "'steps' is neither a file nor KEY=VALUE: write KEY=VALUE, as in steps=100"),
        ("=3", "'=3' has no key before the '=': write KEY=VALUE, as in steps=100"),
        ("+steps=3",
         "'+steps=3': hydra's '+' does not exist here, every known key can be set without it: write steps=3"),
        ("++steps=3",
         "'++steps=3': hydra's '+' does not exist here, every known key can be set without it: write steps=3"),
        ("~steps", "'~steps': hydra's '~' does not exist here, a key cannot be removed: leave it out, or set it"),
        ("rollout.stop=[a",
         "rollout.stop=[a (from the command line): the value is not valid YAML (expected ',' or ']', but got "
         "'<stream end>'): close what is open, or put the whole value in quotes"),
        ("a={[b]: 1}", "the command line: a key must be a text"),
    ])
    def test_bad_ones_are_explained(self, argument, words):
        assert lines(read_override, argument) == [words]


@pytest.mark.parametrize(("value", "text"), [
    (None, "null"), (True, "true"), (1e-6, "1e-06"), ("a", "a"), ([1, "b", None], "[1, b, null]"),
    ((0.9, 0.99), "[0.9, 0.99]"),
])
def test_values_are_shown_as_a_user_writes_them(value, text):
    assert display(value) == text

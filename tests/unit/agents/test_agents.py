import asyncio

import pytest

from rlinf_agents.calculator import Calculator, evaluate
from rlinf_agents.config import CalculatorConfig, FunctionsConfig, PythonConfig, TagsConfig
from rlinf_agents.functions import FunctionsAgent, parsed
from rlinf_agents.python import PythonTool
from rlinf_agents.tags import TagsAgent
from rlinf_cli.contracts.tool import ToolError, ToolSpec
from rlinf_cli.errors import UsageError
from rlinf_cli.rl.trajectory import Prompt

TWO = ToolSpec("two", "", {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                           "required": ["a", "b"]})


def texts(dialogue):
    return [(said.role, said.text) for said in dialogue.transcript.said]


class TestTags:
    def ended(self, dialogue, echo, policy, run, **settings):
        tool = echo()
        made = dialogue(policy, tool)
        run(TagsAgent(TagsConfig(**settings), tool.specs()).run(made, made.prompt))
        return made

    def test_calls_end_turns_and_are_answered_in_the_text(self, dialogue, echo, scripted, run):
        made = self.ended(dialogue, echo, scripted("I ask <echo> x </echo>", "so <answer>x</answer>"), run)
        assert texts(made) == [("policy", "I ask <echo> x </echo>"), ("tool", "\n\n<information>echo x</information>\n\n"),
                               ("policy", "so <answer>x</answer>")]

    def test_a_turn_that_neither_calls_nor_answers_ends_it_or_is_told(self, dialogue, echo, scripted, run):
        assert len(texts(self.ended(dialogue, echo, scripted("hm|", "hm|"), run))) == 1
        made = self.ended(dialogue, echo, scripted("hm|", "<answer>x</answer>"), run, invalid="\nTry again.\n")
        assert [text for _, text in texts(made)] == ["hm", "\nTry again.\n", "<answer>x</answer>"]

    def test_the_innermost_call_counts(self, dialogue, echo, scripted, run):
        made = self.ended(dialogue, echo, scripted("<echo> no <echo>yes</echo>", "|"), run)
        assert "echo yes" in texts(made)[1][1]

    def test_what_ends_without_a_call_is_none(self, dialogue, echo, scripted, run):
        made = self.ended(dialogue, echo, scripted("</echo>"), run)
        assert len(texts(made)) == 1

    def test_tools_that_need_more_than_a_text_are_refused(self):
        with pytest.raises(UsageError, match=r"two needs a, b: use agent\.name=functions"):
            TagsAgent(TagsConfig(), [TWO])
        with pytest.raises(UsageError, match="needs a tool to call"):
            TagsAgent(TagsConfig(), [])


class TestFunctions:
    def ended(self, dialogue, echo, run, *said, scripted, **settings):
        tool = echo()
        agent = FunctionsAgent(FunctionsConfig(**settings), tool.specs())
        made = dialogue(scripted(*said), tool, prompt=Prompt("0-7", messages=[{"role": "user", "content": "q?"}]), new=200)
        run(agent.run(made, made.prompt))
        return made

    def call(self, text):
        return f'<tool_call>{{"name": "echo", "arguments": {{"text": "{text}"}}}}</tool_call>'

    def test_calls_of_one_turn_go_on_side_by_side_and_are_answered_in_their_order(self, dialogue, echo, run, scripted):
        made = self.ended(dialogue, echo, run, f"{self.call('a')}\n{self.call('b')}|", "done|", scripted=scripted)
        assert texts(made)[1][1] == "\n[tool]echo a<end>\n[tool]echo b<end>\n[assistant]"

    def test_what_is_no_call_is_told(self, dialogue, echo, run, scripted):
        made = self.ended(dialogue, echo, run, "<tool_call>{</tool_call>|", "done|", scripted=scripted)
        assert "Error: this is no JSON" in texts(made)[1][1]

    def test_too_many_calls_are_told(self, dialogue, echo, run, scripted):
        made = self.ended(dialogue, echo, run, f"{self.call('a')}{self.call('b')}|", "done|", scripted=scripted, parallel=1)
        assert "echo a" in texts(made)[1][1]
        assert "only 1 calls at once" in texts(made)[1][1]

    def test_a_turn_that_was_cut_off_ends_it(self, dialogue, echo, run, scripted):
        made = self.ended(dialogue, echo, run, "<tool_call>" + "x" * 300, scripted=scripted)
        assert len(texts(made)) == 1

    def test_the_template_tells_of_the_tools(self, echo):
        agent = FunctionsAgent(FunctionsConfig(), echo().specs())
        task = agent.prepare(Prompt("a", text="q?"))
        assert task.messages == [{"role": "user", "content": "q?"}]
        assert task.text is None
        assert task.tools[0]["function"]["name"] == "echo"

    def test_a_template_that_does_not_tell_of_them_is_refused(self, echo, encoder):
        task = FunctionsAgent(FunctionsConfig(), echo().specs()).prepare(Prompt("a", text="q?"))
        with pytest.raises(UsageError, match=r"does not tell of tools.* agent\.name=tags"):
            encoder.encode(task)

    @pytest.mark.parametrize("call", ["[]", '{"name": 3}', '{"name": "a", "arguments": "x"}', '{"arguments": {}}'])
    def test_what_a_call_must_have(self, call):
        with pytest.raises(ValueError, match="a call has a name and arguments"):
            parsed(call)


class TestCalculator:
    @pytest.mark.parametrize(("text", "value"), [
        ("3 + 4 * 2", "11"), ("(1/3)*3", "1"), ("2 ** 10", "1024"), ("2^3", "8"), ("-5 // 2", "-3"), ("7 % 3", "1"),
        ("1/3", "0.333333333333"),
        ("1,234 × 2", "2468"), ("0.1 + 0.2", "0.3"), ("4 ÷ 8 =", "0.5"), ("2 ** -2", "0.25")])
    def test_works_out(self, text, value):
        assert asyncio.run(Calculator(CalculatorConfig()).call("calculator", {"expression": text})) == value

    @pytest.mark.parametrize(("text", "told"), [
        ("1/0", "division by zero"), ("9**9**9", "too large"), ("5 ** 5 ** 5 ** 5", "too large"), ("2 ** 0.5", "whole number"),
        ("x + 1", "no arithmetic"),
        ("__import__('os')", "no arithmetic"), ("1 +", "no arithmetic expression"), ("1" * 400, "300 characters"),
        ("(" * 290, "no arithmetic"),
        ("10 ** 390 * 10 ** 390", "too large"), ("True", "no arithmetic"), ("'a' * 9", "no arithmetic")])
    def test_refuses(self, text, told):
        with pytest.raises(ToolError, match=told):
            evaluate(text)


class TestPython:
    def said(self, code, **settings):
        return asyncio.run(PythonTool(PythonConfig(**settings)).call("python", {"code": code}))

    def test_shows_what_is_printed(self):
        assert self.said("print(6 * 7)") == "42\n"
        assert self.said("pass") == "(nothing was printed)"
        assert self.said("print('a' * 100)", characters=10) == "a" * 10 + " [cut]"

    def test_shows_how_it_failed(self):
        found = self.said("print(1)\nraise ValueError('no')")
        assert found.startswith("1\nTraceback")
        assert found.endswith("ValueError: no\n(exit code 1)")

    def test_is_ended_at_its_limit(self):
        assert self.said("while True: pass", run_s=0.5).endswith("(took longer than 0.5 s)")

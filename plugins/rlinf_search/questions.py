"""The data set `search-qa`: questions about the made-up world, which its pages answer in one or two hops."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from rlinf_cli.api import Row
from rlinf_search.config import QuestionsConfig
from rlinf_search.world import World

INSTRUCTION = (
    "Answer the question. Think between <think> and </think> whenever you learn something new. If you lack knowledge, search by "
    "<search> query </search>, and what is found is shown between <information> and </information>. Search as often as you like. "
    "When you know the answer, give it between <answer> and </answer>, without explanations. Question: ")
"""After Search-R1's (arXiv 2503.09516, table 1), in words of our own."""


class Questions:
    """Drawn from all questions, each as likely as the others; a row is a function of (seed, index). Its columns are `hops` and
    `pages`, the titles of the pages that tell the answer."""

    size: int | None = None

    def __init__(self, config: QuestionsConfig, seed: int) -> None:
        self._config, self._seed = config, seed
        known = world(config.people, config.world_seed).questions
        self._questions = [(hops, one) for hops in config.hops for one in known[hops]]

    def row(self, index: int) -> Row:
        hops, question = self._questions[self._drawn(index)]
        columns = {"hops": hops, "pages": list(question.pages), "question": question.text}
        if self._config.form == "text":
            return Row(text=question.text, answer=question.answer, columns=columns)
        said = f"{INSTRUCTION}{question.text}" if self._config.form == "instructed" else question.text
        return Row(messages=[{"role": "user", "content": said}], answer=question.answer, columns=columns)

    def _drawn(self, index: int) -> int:
        digest = blake2b(f"search-qa {self._seed} {index}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") % len(self._questions)


@lru_cache(maxsize=4)
def world(people: int, seed: int) -> World:
    """The same object for the same world: data, tool and reward of a process share it."""
    return World(people, seed)

"""Configuration keys of search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from rlinf_cli.api import key

HOPS = (1, 2)
FORMS = ("instructed", "question", "text")
BACKENDS = ("fts5", "bm25s", "dense")
"""What passages are found by, see `rlinf_search.finders`."""
WORDS = 100
"""Of a passage, as Search-R1's Wikipedia has them."""
COUNT = 3
"""Passages that a search shows."""


@dataclass(frozen=True)
class QuestionsConfig:
    """Keys of the data set `search-qa`."""

    hops: list[int] = key([1, 2], choices=HOPS)  # noqa: RUF009
    """Pages that must be read, one after the other, to know the answer."""
    people: int = key(200, ge=2)
    """People who live in the made-up world; it has half as many pages again. The tool's `tools.people` is the same number."""
    world_seed: int = key(0, ge=0)
    """Which world. The tool's `tools.world_seed` is the same number."""
    form: str = key("instructed", choices=FORMS)
    """A chat message that says how to search and answer, a chat message with the question alone, or bare text."""

    def problems(self) -> Iterator[str]:
        if not self.hops:
            yield "data.hops is empty: name 1, 2 or both"


@dataclass(frozen=True)
class SearchConfig:
    """Keys of the tool `search`."""

    index: str = ""
    """Directory that `rlinf corpus build` made, or the address of a service (http://...); empty: the made-up world of
    `search-qa`."""
    count: int = key(COUNT, ge=1)
    """Passages that a search shows."""
    fetch: bool = False
    """Whether the policy can also call `open_page`, which shows a whole page by its title."""
    people: int = key(200, ge=2)
    """Of the made-up world, see `data.people` of `search-qa`."""
    world_seed: int = key(0, ge=0)
    """Of the made-up world, see `data.world_seed` of `search-qa`."""
    token_env: str = "RLINF_SEARCH_TOKEN"
    """Environment variable with the token that a service asks for; where it is not set, none is sent."""


@dataclass(frozen=True)
class AnswerConfig:
    """Keys of the reward `answer`."""

    needs_answer: ClassVar[bool] = True

    match: str = key("exact", choices=("exact", "f1", "contains"))
    """The answer is to be the row's, word for word; or by the share of common words; or to hold it."""
    tag: str = key("answer", pattern=r"[A-Za-z_]*", form="a name, or empty")
    """The answer stands between the last <tag> and </tag>; empty: it is the whole last turn."""
    format: float = key(0.0, ge=0, le=1)
    """Reward of a wrong answer in the right form."""
    retrieval: float = key(0.0, ge=0, le=1)
    """Reward of a wrong answer, or none, after a search has shown a passage with the right one."""

    def problems(self) -> Iterator[str]:
        if self.format + self.retrieval > 1:
            yield "reward.format and reward.retrieval together are worth more than the right answer: at most 1"

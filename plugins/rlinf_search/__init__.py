"""Search: a corpus as a tool and as a service, questions about a made-up world, and what an answer is worth."""

from __future__ import annotations

from rlinf_cli.api import Extension, hookimpl


@hookimpl
def register_commands() -> list[Extension]:
    return [Extension("corpus", target="rlinf_search.commands:corpus",
                      summary="Make an index of documents for agents; serve it.")]


@hookimpl
def register_tools() -> list[Extension]:
    return [Extension("search", target="rlinf_search.tool:SearchTool", config="rlinf_search.config:SearchConfig",
                      summary="finds passages of a corpus: an index of rlinf corpus, a service, or the made-up world")]


@hookimpl
def register_datasets() -> list[Extension]:
    return [Extension("search-qa", target="rlinf_search.questions:Questions", config="rlinf_search.config:QuestionsConfig",
                      summary="questions about a made-up world, answered by one or two of its pages",
                      preset={"agent.name": "tags", "tools.name": "search", "reward.name": "answer"})]


@hookimpl
def register_rewards() -> list[Extension]:
    return [Extension("answer", target="rlinf_search.answers:AnswerReward", config="rlinf_search.config:AnswerConfig",
                      summary="1 when the last turn answers as the row does, by words, whatever tools were called before")]

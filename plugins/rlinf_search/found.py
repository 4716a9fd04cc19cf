"""Where passages come from: an index of this machine, a service over HTTP, or the made-up world; and how they are shown."""

from __future__ import annotations

import asyncio
import os
import tempfile
import weakref
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from rlinf_cli.api import RunError, UsageError
from rlinf_search.config import SearchConfig
from rlinf_search.documents import Document
from rlinf_search.index import Hit, Index, build_index, read_facts
from rlinf_search.questions import world


class Source(Protocol):
    """What is searched."""

    async def search(self, query: str, count: int) -> Sequence[Hit]: ...

    async def page(self, title: str) -> Document | None: ...

    async def close(self) -> None: ...


class LocalSource:
    """An index in this process; threads look things up."""

    def __init__(self, index: Index) -> None:
        self._index = index

    async def search(self, query: str, count: int) -> Sequence[Hit]:
        (hits,) = await asyncio.to_thread(self._index.search, [query], count)
        return hits

    async def page(self, title: str) -> Document | None:
        return await asyncio.to_thread(self._index.page, title)

    async def close(self) -> None:
        """Nothing is open."""


class RemoteSource:
    """A service that speaks as Search-R1's does (`rlinf corpus serve` is one)."""

    def __init__(self, address: str, token: str) -> None:
        import httpx

        headers = {"Authorization": f"Bearer {token}"} if token else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        # how long a call may take is for `tools.timeout_s` to say
        self._http = httpx.AsyncClient(base_url=address, headers=headers, limits=limits, timeout=None)

    async def search(self, query: str, count: int) -> Sequence[Hit]:
        document = await self._ask("/retrieve", {"queries": [query], "topk": count, "return_scores": True})
        try:
            (found,) = document["result"]
            return [_hit(one["document"], float(one.get("score", 0.0))) for one in found]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(f"the search service at {self._http.base_url} answers something else than Search-R1's: "
                           f"{str(document)[:200]}") from error

    async def page(self, title: str) -> Document | None:
        document = (await self._ask("/page", {"title": title}))["page"]
        return None if document is None else Document(document["id"], document["title"], document["text"])

    async def close(self) -> None:
        await self._http.aclose()

    async def _ask(self, path: str, question: dict[str, Any]) -> Any:
        answer = await self._http.post(path, json=question)
        answer.raise_for_status()
        return answer.json()


def check_source(config: SearchConfig) -> None:
    """Raises UsageError where the index is none, or its address is wrong; nothing is loaded, or connected to."""
    if is_remote(config):
        if not urlsplit(config.index).hostname:
            raise UsageError(f"tools.index={config.index} is no address: it needs a host, as http://127.0.0.1:8000")
    elif config.index:
        read_facts(Path(config.index).expanduser())


def is_remote(config: SearchConfig) -> bool:
    return config.index.startswith(("http://", "https://"))


def open_source(config: SearchConfig) -> Source:
    """Raises UsageError where there is no such index."""
    if is_remote(config):
        return RemoteSource(config.index, os.environ.get(config.token_env, ""))
    if config.index:
        return LocalSource(Index(Path(config.index).expanduser()))
    return LocalSource(_made_up(config.people, config.world_seed))


def shown(hits: Sequence[Hit]) -> str:
    """As Search-R1 shows passages."""
    found = [f'Doc {place} (Title: "{hit.title}") {hit.text}' for place, hit in enumerate(hits, 1)]
    return "\n".join(found) or "Nothing was found."


def contents(title: str, text: str) -> str:
    """A passage as Search-R1's corpora have it: the title in quotes, and the text below."""
    return f'"{title}"\n{text}'


def _hit(document: dict[str, Any], score: float) -> Hit:
    title, _, text = document["contents"].partition("\n")
    title = title.strip().removeprefix('"').removesuffix('"')
    return Hit(str(document.get("id", title)), title, text, score)


@lru_cache(maxsize=4)
def _made_up(people: int, seed: int) -> Index:
    """Built anew in each process: some ms."""
    directory = tempfile.TemporaryDirectory(prefix="rlinf-world-")
    build_index(world(people, seed).documents, Path(directory.name, "index"))
    index = Index(Path(directory.name, "index"))
    weakref.finalize(index, directory.cleanup)
    return index

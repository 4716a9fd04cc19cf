"""A corpus over HTTP, for clients that speak as Search-R1's do.

    POST /retrieve   {"queries": [...], "topk": 3, "return_scores": true} -> {"result": [[{"document": {...}, "score": 1.0},
    ...], ...]}
    POST /page       {"title": "..."} -> {"page": {"id", "title", "text"} or null}
    GET  /health     -> what the index is

Source: https://github.com/PeterGriffinJin/Search-R1 (search_r1/search/retrieval_server.py); a document's `contents` are its
title in quotes and, below, its text. Wrong requests are answered by 422 and a sentence.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rlinf_search.config import COUNT
from rlinf_search.found import contents
from rlinf_search.index import Hit, Index

MOST_QUERIES, MOST_PASSAGES = 4096, 1000


class Service:
    """`token`: what requests must bear; empty: nothing."""

    def __init__(self, index: Index, count: int = COUNT, token: str = "") -> None:
        self._index, self._count, self._token = index, count, token

    def app(self) -> Starlette:
        routes = [("/retrieve", self._retrieve, "POST"), ("/page", self._page, "POST"), ("/health", self._health, "GET")]
        return Starlette(routes=[Route(path, self._guarded(answer), methods=[method]) for path, answer, method in routes])

    def _guarded(self, answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            if self._token and not secrets.compare_digest(given.encode(), self._token.encode()):
                return JSONResponse({"error": "a token is needed: Authorization: Bearer TOKEN"}, 401)
            try:
                return await answer(request)
            except _Wrong as error:
                return JSONResponse({"error": str(error)}, 422)

        return guarded

    async def _retrieve(self, request: Request) -> Response:
        asked = await _document(request)
        queries, count, scored = asked.get("queries"), asked.get("topk"), asked.get("return_scores", False)
        count = self._count if count is None else count
        if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries) or len(queries) > MOST_QUERIES:
            raise _Wrong(f"`queries` must be a list of texts, {MOST_QUERIES} at most")
        if not isinstance(count, int) or not 1 <= count <= MOST_PASSAGES:
            raise _Wrong(f"`topk` must be a whole number from 1 to {MOST_PASSAGES}")
        found = await asyncio.to_thread(self._index.search, queries, count)
        return JSONResponse({"result": [[_scored(hit) if scored else _plain(hit) for hit in hits] for hits in found]})

    async def _page(self, request: Request) -> Response:
        title = (await _document(request)).get("title")
        if not isinstance(title, str):
            raise _Wrong("`title` must be a text")
        page = await asyncio.to_thread(self._index.page, title)
        return JSONResponse({"page": None if page is None else asdict(page)})

    async def _health(self, request: Request) -> Response:
        return JSONResponse(asdict(self._index.facts))


class _Wrong(Exception):
    """What is wrong with a request."""


async def _document(request: Request) -> dict[str, Any]:
    try:
        asked = await request.json()
    except ValueError as error:
        raise _Wrong(f"the body is no JSON: {error}") from error
    if not isinstance(asked, dict):
        raise _Wrong("the body is no JSON object")
    return asked


def _plain(hit: Hit) -> dict[str, Any]:
    return {"id": hit.document, "contents": contents(hit.title, hit.text)}


def _scored(hit: Hit) -> dict[str, Any]:
    return {"document": _plain(hit), "score": hit.score}

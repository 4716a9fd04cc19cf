"""The tool `search`: passages for a query, and whole pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlinf_cli.api import ToolError, ToolSpec
from rlinf_search.config import SearchConfig
from rlinf_search.found import Source, check_source, open_source, shown

SEARCH = ToolSpec("search", "Find passages of the corpus that fit a query.", {
    "type": "object", "properties": {"query": {"type": "string", "description": "what to look for, in words"}},
    "required": ["query"],
}, cacheable=True)
OPEN_PAGE = ToolSpec("open_page", "Read a whole page of the corpus.", {
    "type": "object", "properties": {"title": {"type": "string", "description": "the page's title"}}, "required": ["title"],
}, cacheable=True)


class SearchTool:
    """Contract: `rlinf_cli.api.Tool`."""

    def __init__(self, config: SearchConfig) -> None:
        check_source(config)
        self.config = config
        self._source: Source | None = None

    def specs(self) -> Sequence[ToolSpec]:
        return [SEARCH, OPEN_PAGE] if self.config.fetch else [SEARCH]

    async def open(self) -> None:
        self._source = open_source(self.config)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        assert self._source is not None, "open comes first"
        if name == "search":
            return shown(await self._source.search(arguments["query"], self.config.count))
        page = await self._source.page(arguments["title"])
        if page is None:
            raise ToolError(f"There is no page with the title {arguments['title']!r}.")
        return f"{page.title}\n{page.text}"

    async def close(self) -> None:
        if self._source is not None:
            await self._source.close()
            self._source = None

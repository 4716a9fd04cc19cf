"""`rlinf corpus`: make an index of documents, and serve it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rlinf_search.config import BACKENDS, COUNT, WORDS


@click.group()
def corpus() -> None:
    """Make an index of documents for search agents, and serve it."""


@corpus.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILES...")
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), metavar="INDEX",
              help="Directory to make.")
@click.option("--backend", type=click.Choice(BACKENDS), default=BACKENDS[0], show_default=True,
              help="By words on the disk, by words in memory, or by meaning.")
@click.option("--words", type=click.IntRange(min=1), default=WORDS, show_default=True, metavar="N", help="Longest passage.")
@click.option("--overlap", type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
              help="Words of whole sentences with which a passage repeats the one before.")
@click.option("--encoder", metavar="MODEL", default="", help="Of sentence-transformers, for --backend dense.")
@click.option("--overwrite", is_flag=True, help="Replace an index that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def build(files: tuple[Path, ...], out: Path, backend: str, words: int, overlap: int, encoder: str, overwrite: bool,
          as_json: bool) -> None:
    """Cut documents into passages, and make an index of them.

    FILES end in .jsonl (objects with `text`, and `title` and `id` where there are such, or Search-R1's `contents`), .md or .txt;
    directories are searched through.
    """
    from rlinf_cli.api import UsageError
    from rlinf_search.documents import read_documents
    from rlinf_search.index import build_index

    if (backend == "dense") != bool(encoder):
        raise UsageError("--backend dense needs --encoder MODEL, and no other back end has one")
    if overlap >= words:
        raise UsageError(f"--overlap {overlap} must be less than --words {words}")
    if out.exists() and not overwrite:
        raise UsageError(f"{out} is there: name another directory, or say --overwrite")
    facts = build_index(read_documents(files), out, backend, words, overlap, encoder)
    _tell(out, facts, as_json)


@corpus.command()
@click.argument("index", type=click.Path(path_type=Path, file_okay=False), metavar="INDEX")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def info(index: Path, as_json: bool) -> None:
    """Say what an index is."""
    from rlinf_search.index import read_facts

    _tell(index, read_facts(index), as_json)


@corpus.command()
@click.argument("index", type=click.Path(path_type=Path, file_okay=False), metavar="INDEX")
@click.argument("queries", nargs=-1, required=True, metavar="QUERY...")
@click.option("--count", type=click.IntRange(min=1), default=COUNT, show_default=True, metavar="N", help="Passages to show.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def search(index: Path, queries: tuple[str, ...], count: int, as_json: bool) -> None:
    """Show what is found for each query, as a policy would see it."""
    from dataclasses import asdict

    from rlinf_cli.api import emit
    from rlinf_search.found import shown
    from rlinf_search.index import Index

    found = list(zip(queries, Index(index).search(queries, count), strict=True))
    document = {"queries": [{"query": query, "hits": [asdict(hit) for hit in hits]} for query, hits in found]}
    emit(document, as_json, lambda: "\n\n".join(f"{query}\n{shown(hits)}" for query, hits in found))


@corpus.command()
@click.argument("index", type=click.Path(path_type=Path, file_okay=False), metavar="INDEX")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any that is free.")
@click.option("--count", type=click.IntRange(min=1), default=COUNT, show_default=True, metavar="N", 
              help="Passages, where topk is left out.")
def serve(index: Path, host: str, port: int, count: int) -> None:
    """Serve an index over HTTP, for clients that speak as Search-R1's do. The token of RLINF_SEARCH_TOKEN is asked for, where
    that is set."""
    import os

    from rlinf_search.index import Index
    from rlinf_search.service import Service
    from rlinf_search.serving import serve_app

    serve_app(Service(Index(index), count, os.environ.get("RLINF_SEARCH_TOKEN", "")).app(), host, port,
              lambda address: click.echo(f"{index} at {address}/retrieve", err=True))


def _tell(index: Path, facts: Any, as_json: bool) -> None:
    from dataclasses import asdict

    from rlinf_cli.api import emit, table

    document = {"index": str(index), **asdict(facts)}
    rows = [("index", str(index)), ("found by", facts.backend + (f" ({facts.encoder})" if facts.encoder else "")),
            ("documents", f"{facts.documents:,}"), ("passages", f"{facts.passages:,} of at most {facts.words} words")]
    emit(document, as_json, lambda: table(("", ""), rows))

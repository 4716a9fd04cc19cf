import threading

import httpx
import pytest

from rlinf_cli.contracts.tool import ToolError
from rlinf_cli.errors import RunError, UsageError
from rlinf_search.config import SearchConfig
from rlinf_search.found import RemoteSource, shown
from rlinf_search.index import Hit, Index, build_index
from rlinf_search.service import Service
from rlinf_search.serving import serve_app
from rlinf_search.tool import SearchTool
from rlinf_search.world import World

WORLD = World(40, 0)
PERSON = WORLD.people[0].name


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    directory = tmp_path_factory.mktemp("corpus") / "index"
    build_index(WORLD.documents, directory)
    return directory


@pytest.fixture
def client(index):
    def made(token=""):
        return httpx.AsyncClient(transport=httpx.ASGITransport(Service(Index(index), token=token).app()), base_url="http://corpus")

    return made


async def post(client, path, document, **headers):
    async with client:
        answer = await client.post(path, json=document, headers=headers)
    return answer.status_code, answer.json()


def test_it_speaks_as_search_r1_does(client, run):
    status, found = run(post(client(), "/retrieve", {"queries": [f"{PERSON} river", "zebra"], "topk": 2,
                                                         "return_scores": True}))
    assert status == 200
    first, second = found["result"]
    assert second == []
    assert len(first) == 2
    assert first[0]["document"] == {"id": PERSON, "contents": f'"{PERSON}"\n{WORLD.documents[0].text}'}
    assert first[0]["score"] > first[1]["score"] > 0


def test_without_scores_it_gives_documents(client, run):
    _, found = run(post(client(), "/retrieve", {"queries": [f"{PERSON} river"]}))
    assert len(found["result"][0]) == 3
    assert found["result"][0][0]["id"] == PERSON


@pytest.mark.parametrize(("asked", "told"), [
    ({"queries": "one"}, "`queries` must be a list"), ({"queries": [1]}, "`queries`"), ({}, "`queries`"),
    ({"queries": [], "topk": 0}, "`topk`"), ({"queries": [], "topk": "3"}, "`topk`"), ([], "no JSON object")])
def test_wrong_requests_are_told(client, run, asked, told):
    status, found = run(post(client(), "/retrieve", asked))
    assert status == 422
    assert told in found["error"]


def test_a_token_is_asked_for(client, run):
    assert run(post(client("secret"), "/retrieve", {"queries": [PERSON]}))[0] == 401
    assert run(post(client("secret"), "/retrieve", {"queries": [PERSON]}, authorization="Bearer other"))[0] == 401
    assert run(post(client("secret"), "/retrieve", {"queries": [PERSON]}, authorization="Bearer secret"))[0] == 200


def test_pages(client, run):
    assert run(post(client(), "/page", {"title": PERSON}))[1]["page"]["text"] == WORLD.documents[0].text
    assert run(post(client(), "/page", {"title": "nobody"}))[1] == {"page": None}
    assert run(post(client(), "/page", {}))[0] == 422


async def told(config, *calls):
    tool = SearchTool(config)
    await tool.open()
    try:
        return [await tool.call(name, arguments) for name, arguments in calls]
    finally:
        await tool.close()


def test_the_tool_shows_the_same_from_here_and_from_a_service(index, run):
    """Over a real socket."""
    address, ready = [], threading.Event()

    def listening(where):
        address.append(where)
        ready.set()

    stop = serve_app(Service(Index(index), token="secret").app(), "127.0.0.1", 0, listening, wait=False)
    assert ready.wait(30)
    calls = [("search", {"query": f"{PERSON} river"}), ("open_page", {"title": PERSON})]
    here = run(told(SearchConfig(str(index), fetch=True), *calls))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLINF_SEARCH_TOKEN", "secret")
        there = run(told(SearchConfig(address[0], fetch=True), *calls))
    assert here == there
    assert here[0].startswith(f'Doc 1 (Title: "{PERSON}") {WORLD.documents[0].text}\nDoc 2')
    assert here[1] == f"{PERSON}\n{WORLD.documents[0].text}"
    with pytest.raises(httpx.HTTPStatusError, match="401"):
        run(told(SearchConfig(address[0]), calls[0]))
    stop()
    with pytest.raises(httpx.ConnectError):
        run(told(SearchConfig(address[0]), calls[0]))


def test_the_made_up_world_needs_no_index(run):
    (found,) = run(told(SearchConfig(people=40), ("search", {"query": PERSON})))
    assert PERSON in found
    with pytest.raises(ToolError, match="no page with the title 'Nobody'"):
        run(told(SearchConfig(fetch=True), ("open_page", {"title": "Nobody"})))


def test_nothing_found_is_said():
    assert shown([]) == "Nothing was found."
    assert shown([Hit("a", "A", "text", 1.0)]) == 'Doc 1 (Title: "A") text'


@pytest.mark.parametrize("answer", [{}, {"result": 3}, {"result": [[{"document": {}}]]}, {"result": []}, [], {"result": [[5]]}])
def test_a_service_that_answers_something_else_is_told(run, answer):
    async def ask():
        source = RemoteSource("http://corpus", "")
        source._http = httpx.AsyncClient(transport=httpx.MockTransport(lambda request: httpx.Response(200, json=answer)),
                                         base_url="http://corpus")
        return await source.search("x", 3)

    with pytest.raises(RunError, match="answers something else than Search-R1's"):
        run(ask())


@pytest.mark.parametrize(("index", "told"), [("nowhere", "is no index of a corpus"), ("http://", "it needs a host")])
def test_a_source_that_is_none_is_told_before_anything_runs(index, told):
    with pytest.raises(UsageError, match=told):
        SearchTool(SearchConfig(index))

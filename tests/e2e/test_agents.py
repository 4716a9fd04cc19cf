"""Agents from the command line: episodes with tools, trained and evaluated, and what becomes of a search service that fails."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from textwrap import dedent

import pytest

pytestmark = pytest.mark.e2e
COMMON = ["train", "--algo", "grpo", "--data", "search-qa", "data.form=text", "agent.name=always", "agent.max_tokens=600",
          "rollout.max_prompt_tokens=128", "rollout.max_new_tokens=6", "rollout.prompts=4", "rollout.group_size=4",
          "log.samples=16", "tools.retries=1", "tools.timeout_s=1"]
AGENT = """
    from rlinf_cli.api import Extension, hookimpl


    class Always:
        '''Speaks, looks its task up, and speaks again.'''

        def __init__(self, config, tools):
            assert [tool.name for tool in tools] == ["search"]

        def prepare(self, task):
            return task

        async def run(self, conversation, task):
            await conversation.generate()
            conversation.show(await conversation.call("search", {"query": task.columns["question"]}), "tool", "search")
            await conversation.generate()


    @hookimpl
    def register_agents():
        return [Extension("always", target="always:Always")]
"""


@pytest.fixture
def site(tmp_path):
    """A directory with a plugin, for PYTHONPATH."""
    folder = tmp_path / "site"
    info = folder / "always-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "always.py").write_text(dedent(AGENT))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: always\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rlinf]\nalways = always\n")
    return str(folder)


@pytest.fixture
def service():
    """`service(answer)`: the address of one on which `answer` says (status, document) to each request, by its number."""
    servers = []

    def serve(answer):
        count = iter(range(10**9))

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                status, document = answer(next(count))
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield serve
    for one in servers:
        one.shutdown()
        one.server_close()


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_episodes_are_trained_and_evaluated(rlinf, site, tmp_path):
    rlinf(*COMMON, "--steps", "2", "--name", "a", "eval.every=2", "eval.prompts=4", PYTHONPATH=site, check=True)
    rows = rows_of(tmp_path / "runs/a/metrics.jsonl")
    for row in rows[1:]:
        assert row["agent/episodes"] == 16
        assert row["agent/turns/mean"] == 2
        assert row["tool/search/calls"] == 16
        assert row["rollout/logp_diff/max"] < 1e-4
        assert row["actor/samples"] == 16
    assert rows[2]["eval/search-qa/trials"] == 4
    sample = rows_of(tmp_path / "runs/a/samples.jsonl")[0]
    assert [part["role"] for part in sample["transcript"]] == ["policy", "tool", "policy"]
    assert sample["transcript"][1]["text"].startswith('Doc 1 (Title: "')
    document = json.loads(rlinf("eval", "a", "--json", "--devices", "cpu:2", PYTHONPATH=site, check=True).stdout)
    assert document["tasks"][0]["successes"] == rows[2]["eval/search-qa/successes"]


def test_a_service_that_fails_now_and_then_costs_its_episodes_and_nothing_else(rlinf, site, service, tmp_path):
    found = {"result": [[{"document": {"id": "a", "contents": '"A"\ntext'}, "score": 1.0}]]}
    wrong = [(500, {}), (200, {"something": "else"}), (200, found)]
    address = service(lambda number: wrong[number % 3])
    done = rlinf(*COMMON, "--steps", "2", "--name", "a", f"tools.index={address}", "tools.cache=0", "agent.max_failures=0.9",
                 PYTHONPATH=site)
    assert done.returncode == 0, done.stderr
    for row in rows_of(tmp_path / "runs/a/metrics.jsonl"):
        assert 0 < row["agent/failed"] < 16
        assert row["reward/errors"] == row["agent/failed"] == row["tool/search/failures"]
        assert row["actor/samples"] + row["actor/dropped/no_reward"] == 16
    failed = [row for row in rows_of(tmp_path / "runs/a/samples.jsonl") if "error" in row]
    assert failed
    assert {row["reward"] for row in failed} == {None}
    assert all(row["error"].startswith("tool search failed 2 times, the last time with") for row in failed)


def test_a_service_that_is_down_ends_the_run_with_its_cause(rlinf, site, service):
    done = rlinf(*COMMON, "--steps", "2", "tools.index=http://127.0.0.1:9", PYTHONPATH=site)
    assert done.returncode == 1
    assert "16 of 16 episodes have failed, more than agent.max_failures=0.2" in done.stderr
    assert "ConnectError" in done.stderr

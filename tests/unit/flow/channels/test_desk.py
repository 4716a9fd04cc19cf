"""Machines behind the desk, each with its clients; and what the desk writes down."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass

import numpy as np
import pytest

from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.desk import Desk, Guest, Service
from rlinf_cli.flow.errors import ChannelBrokenError, ChannelError, ChannelTimeoutError
from rlinf_cli.flow.journal_file import JournalFile, read_journal
from rlinf_cli.state.channel import ChannelsState
from rlinf_cli.state.channel_events import GiveBack, Gone, Join, Lend, Put, Settle
from rlinf_cli.state.device_lock import DeviceLockState
from rlinf_cli.state.journal import replay


@dataclass(frozen=True)
class Told:
    client: int
    what: tuple


class Bell:
    """A machine: whoever rings is confirmed, all others hear it."""

    def __init__(self) -> None:
        self.present: dict[int, str] = {}
        self.gone: list[str] = []

    def handle(self, event) -> list[Told]:
        kind, client, *rest = event
        if kind == "joined":
            self.present[client] = rest[0]
            return []
        if kind == "gone":
            self.gone.append(f"{self.present.pop(client)} {rest[0]}")
            return []
        request, note = rest
        if note == "false":
            return [Told(client, ("fail", request, "refused", "a false note"))]
        others = [Told(other, ("rung", self.present[client], note)) for other in self.present if other != client]
        return [*others, Told(client, ("ok", request, len(others)))]


def install(desk: Desk) -> Bell:
    bell = Bell()
    desk.register(Service("bell", bell, lambda *told: ("joined", *told), lambda *told: ("gone", *told),
                          lambda told: desk.tell(told.client, told.what), {"ring": lambda *told: ("ring", *told)}))
    return bell


class TestDesk:
    @pytest.fixture
    def sent(self):
        return []

    @pytest.fixture
    def desk(self, sent):
        return Desk(lambda client, message: sent.append((client, message)))

    def test_a_message_becomes_an_event_and_its_instructions_messages(self, desk, sent):
        install(desk)
        for client, identity in ((1, "driver"), (2, "actor[0]")):
            desk.join(client, Guest(identity, "n", False))
        desk.receive(2, ("ring", 17, "a"))
        assert sent == [(1, ("rung", "actor[0]", "a")), (2, ("ok", 17, 1))]

    def test_every_machine_learns_who_comes_and_goes(self, desk):
        first = install(desk)
        second = Bell()
        desk.register(Service("second", second, lambda *told: ("joined", *told), lambda *told: ("gone", *told), print, {}))
        desk.join(1, Guest("actor[0]", "n", False))
        desk.leave(1, "died")
        assert first.gone == second.gone == ["actor[0] died"]
        assert desk.guests == {}

    def test_two_machines_cannot_have_the_same_messages(self, desk):
        install(desk)
        with pytest.raises(AssertionError, match="'ring' are handled already"):
            install(desk)

    def test_a_number_is_not_given_twice(self, desk):
        assert len({desk.number() for _ in range(5)}) == 5

    def test_activity_is_what_workers_send_beside_waiting(self, desk):
        install(desk)
        desk.on("get", lambda *_: None)
        for client, guest in ((1, Guest("driver", "n", False)), (2, Guest("actor[0]", "n", False)),
                              (3, Guest("node-store@m", "m", True))):
            desk.join(client, guest)
            desk.receive(client, ("ring", 1, "a"))
            desk.receive(client, ("get", 1))
        assert desk.activity == 1


class TestClients:
    @pytest.fixture
    def bell(self, run):
        return install(run.controller._desk)

    def test_a_request_is_answered_and_others_are_told(self, run, bell):
        heard: queue.Queue = queue.Queue()
        listener, ringer = run.join("actor[0]"), run.join("rollout[0]")
        listener.register("rung", lambda *told: heard.put((threading.current_thread().name, *told)))
        assert ringer.request("ring", "a") == 1
        assert heard.get(timeout=5) == ("rlinf-channels", "rollout[0]", "a")

    def test_a_failure_is_raised(self, run, bell):
        with pytest.raises(ChannelError, match="a false note"):
            run.join("rollout[0]").request("ring", "false")

    def test_an_answer_that_does_not_come_ends_the_wait(self, run, bell):
        run.controller._desk.on("silence", lambda *_: None)
        with pytest.raises(ChannelTimeoutError, match=r"has not answered rollout\[0\] within 0\.05 s"):
            run.join("rollout[0]").request("silence", timeout=0.05)

    def test_what_is_sent_is_in_order_with_what_is_put(self, run):
        seen: list = []
        desk = run.controller._desk
        desk.on("note", lambda client, text: seen.append((text, desk.activity)))
        client = run.join("rollout[0]")
        Channel("c", client).put("x")
        client.send("note", "after")
        Channel("c", client).get()
        assert seen == [("after", 2)]

    def test_a_kind_has_one_handler(self, run):
        with pytest.raises(AssertionError, match="'accept' are handled already"):
            run.join("rollout[0]").register("accept", print)

    def test_after_the_end_sending_says_so(self, run):
        client = run.join("rollout[0]")
        client.close()
        with pytest.raises(ChannelBrokenError):
            client.send("note", "late")

    def test_a_lost_client_is_gone_for_every_machine(self, run, bell, eventually):
        child = run.child("actor[3]", "time.sleep(60)")
        eventually(lambda: "actor[3]" in bell.present.values(), timeout=10)
        child.kill()
        eventually(lambda: bell.gone == ["actor[3] died"])


class TestJournal:
    def test_real_channels_with_a_death_replay(self, make_run, tmp_path, eventually):
        """Two processes work, one is killed in the middle; a fresh machine comes to the same decisions."""
        run = make_run(journal=tmp_path / "events.jsonl")
        work = """
            results = Channel("results")
            for leases in Channel("jobs").leases(2, at_least=1):
                for lease in leases:
                    time.sleep(0.001)
                    results.put((lease.item[0], np.zeros(20_000)), settles=[lease])
        """
        jobs = run.channel("jobs")
        results = Channel.create("results", capacity=2, via=jobs._client)
        results.declare(["worker[0]"], guarded=True)
        jobs.put_many([(number, "secret") for number in range(40)])
        jobs.close()
        first, _ = run.child("worker[0]", work), run.child("worker[1]", work)
        eventually(lambda: {"worker[0]", "worker[1]"} <= set(run.controller.stats()["clients"]), 20)
        got = results.get(5, at_least=5)
        first.kill()
        while len(got) < 40:
            got += results.get(8)
        assert sorted(number for number, _ in got) == list(range(40))
        eventually(lambda: run.controller.stats()["channels"]["jobs"]["delivered"] == 40)
        results.drop()
        run.controller.stop()
        records = list(read_journal(tmp_path / "events.jsonl"))
        assert {type(record.event) for record in records} >= {Join, Gone, Put}
        assert sum(len(record.event.items) for record in records if isinstance(record.event, Put)) == 80
        assert any(isinstance(one, Lend) for record in records for one in record.instructions)
        assert replay(records, {"channels": ChannelsState(), "device_lock": DeviceLockState()}) is None
        assert "secret" not in (tmp_path / "events.jsonl").read_text()

    def test_it_shows_what_a_process_did_with_its_leases(self, make_run, tmp_path):
        run = make_run(journal=tmp_path / "events.jsonl")
        jobs = run.channel("jobs")
        jobs.put_many("ab")
        first, second = jobs.lease(2, at_least=2)
        jobs.settle([first])
        jobs.give_back([second])
        assert jobs.qsize() == 1
        run.controller.stop()
        events = [record.event for record in read_journal(tmp_path / "events.jsonl") if record.machine == "channels"]
        assert [event for event in events if isinstance(event, (Settle, GiveBack))] == [
            Settle(1, "jobs", (1,)), GiveBack(1, "jobs", (2,))]

    def test_none_is_kept_unless_asked_for(self, run, tmp_path):
        run.channel("c").put(1, wait=True)
        assert list(tmp_path.iterdir()) == []

    def test_one_that_is_cut_off_is_read_as_far_as_it_goes(self, tmp_path):
        path = tmp_path / "events.jsonl"
        journal = JournalFile(path)
        desk = Desk(lambda *_: None, journal)
        state = ChannelsState()
        desk.register(Service("channels", state, Join, Gone, print, {}))
        for client in range(1, 4):
            desk.join(client, Guest(f"worker[{client}]", "n", False))
        desk.close()
        path.write_bytes(path.read_bytes()[:-5])
        assert [record.event.client for record in read_journal(path)] == [1, 2]


def test_activity_stands_still_while_everybody_waits(run, eventually):
    worker = run.channel("c", "reward[0]")
    driver = run.channel("c")
    before = run.controller.stats()["activity"]
    with pytest.raises(ChannelTimeoutError):
        worker.get(timeout=0.02)
    assert worker.get(at_least=0) == []
    driver.put(np.zeros(100_000), wait=True)
    worker.get()
    time.sleep(0.02)
    assert run.controller.stats()["activity"] == before
    worker.put(1, wait=True)
    assert run.controller.stats()["activity"] == before + 1

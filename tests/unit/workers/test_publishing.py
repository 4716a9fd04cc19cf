"""What of a policy travels: the adapter alone where both sides know one, else all weights."""

from types import SimpleNamespace

import pytest
import torch

from rlinf_cli.contracts.trainer import Adapter
from rlinf_cli.workers import publishing
from rlinf_cli.workers.publishing import PolicyPublisher, travelling_adapter

ADAPTER = Adapter(2, 1.0, ("w.weight",))


def config(takes_adapters):
    engine = SimpleNamespace(load=lambda: SimpleNamespace(takes_adapters=takes_adapters))
    return SimpleNamespace(extension=lambda section: engine)


@pytest.mark.parametrize(("trained", "taken", "travels"), [
    (None, True, None), (None, False, None), (ADAPTER, False, None), (ADAPTER, True, ADAPTER)])
def test_the_adapter_alone_only_where_both_know_one(trained, taken, travels):
    assert travelling_adapter(config(taken), SimpleNamespace(adapter=lambda: trained)) == travels


def test_the_engine_is_not_imported_where_no_adapter_is_trained():
    def load():
        raise ImportError("not here")

    run = SimpleNamespace(extension=lambda section: SimpleNamespace(load=load))
    assert travelling_adapter(run, SimpleNamespace(adapter=lambda: None)) is None


class Trainer:
    """Of one tensor, that an adapter with one factor may change."""

    def __init__(self, adapter=None):
        self._adapter, self.weight, self.factor = adapter, torch.ones(3), torch.zeros(2)

    def adapter(self):
        return self._adapter

    def named_weights(self):
        yield "w", self.weight

    def adapter_weights(self):
        yield "w.lora_A", self.factor


def engines(*nodes):
    return SimpleNamespace(seats=[SimpleNamespace(node=node) for node in nodes])


@pytest.fixture
def publisher(tmp_path, monkeypatch, configure):
    """`publisher("key=value", adapter=None)`: one whose manifests are collected in `.sent`, with their targets."""

    def make(*keys, adapter=None):
        here = SimpleNamespace(node="here", address=SimpleNamespace(directory_on=lambda node: str(tmp_path)))
        monkeypatch.setattr(publishing, "client", lambda: here)
        monkeypatch.setattr(publishing, "base_checksum", lambda model: f"of {model}")
        made = PolicyPublisher(configure("cluster.call_timeout_s=7", *keys), Trainer(adapter), "model")
        made.sent = []

        def deliver(targets, manifest, timeout):
            assert timeout == 7
            made.sent.append((targets, manifest))
            return {}

        monkeypatch.setattr(publishing, "deliver", deliver)
        return made

    return make


def test_weights_are_published_and_sent_again_to_those_who_come_later(publisher):
    one, all_of_them, late = publisher(), engines("here", "there"), engines("here")
    assert one.resend(late) == -1
    one.publish(4, False, all_of_them)
    assert one.resend(late) == 4
    (first, manifest), (second, again) = one.sent
    assert (first, second) == (all_of_them, late)
    assert manifest is again
    assert [entry.name for entry in manifest.entries] == ["w"]
    assert manifest.base == ""


def test_an_adapter_is_published_and_sent_again_with_what_it_belongs_to(publisher):
    one = publisher(adapter=ADAPTER)
    one.publish(1, False, engines("here"))
    assert one.resend(engines("here")) == 1
    for _, manifest in one.sent:
        assert (manifest.adapter, manifest.base) == (ADAPTER, "of model")
        assert [entry.name for entry in manifest.entries] == ["w.lora_A"]


@pytest.mark.parametrize(("keys", "nodes", "written"), [
    (["cluster.weights_delta=true"], ["here", "there"], True), (["cluster.weights_delta=true"], ["here"], False),
    ([], ["there"], False)])
def test_changes_are_written_down_for_other_nodes_where_that_is_wanted(publisher, keys, nodes, written):
    one = publisher(*keys)
    for version in range(2):
        one.publish(version, False, engines(*nodes))
    assert (one.sent[-1][1].changes is not None) is written

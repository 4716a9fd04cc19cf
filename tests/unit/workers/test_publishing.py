"""What of a policy travels: the adapter alone where both sides know one, else all weights."""

from types import SimpleNamespace

import pytest

from rlinf_cli.contracts.trainer import Adapter
from rlinf_cli.workers.publishing import travelling_adapter

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

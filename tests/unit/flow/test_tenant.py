"""What a process says of its device's memory."""

import sys
from types import SimpleNamespace

import pytest

from rlinf_cli.flow.tenant import reserved


def torch(used):
    return SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: used > 0, max_memory_reserved=lambda: used))


@pytest.mark.parametrize(("kind", "used", "expected"), [("cuda", 40e9, 40 * 10**9), ("cuda", 0, 0), ("cpu", 40e9, 0)])
def test_memory_of_the_device(monkeypatch, kind, used, expected):
    monkeypatch.setitem(sys.modules, "torch", torch(used))
    assert reserved(kind) == expected


def test_who_has_not_imported_torch_has_reserved_nothing(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert reserved("cuda") == 0
    assert "torch" not in sys.modules

"""What a group can call on a worker."""

from __future__ import annotations

import pickle
import threading
from typing import TYPE_CHECKING

from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.worker import Worker, control, methods

if TYPE_CHECKING:
    from nowhere import Something


class Base(Worker):
    def shared(self, a: int) -> int:
        return a


class Rollout(Base):
    limit = 3
    lock = threading.Lock()

    def generate(self, prompts: In[int], samples: Out[int], extra: Out[Something] | None = None, *, n: int = 2) -> None: ...

    @control
    def abort(self) -> None: ...

    def onload(self) -> None: ...

    def close(self) -> None: ...

    def _private(self) -> None: ...

    @property
    def ready_now(self) -> bool:
        return True

    @staticmethod
    def helper() -> None: ...

    @classmethod
    def made(cls) -> Rollout:
        return cls()


def test_public_methods_only():
    assert set(methods(Rollout)) == {"shared", "generate", "abort", "onload", "offload"}


def test_what_is_known_of_a_method():
    known = methods(Rollout)
    assert known["generate"].outs == ("samples", "extra")
    assert known["shared"].outs == ()
    assert known["abort"].control
    assert not known["generate"].control


def test_a_control_method_can_be_called_as_any_other():
    class Simple(Worker):
        @control
        def pause(self, why: str) -> str:
            return why

    assert Simple().pause("full") == "full"
    assert list(methods(Simple)["pause"].signature.parameters) == ["why"]


def test_arguments_are_checked_without_the_class():
    signature = methods(Rollout)["generate"].signature
    assert list(signature.parameters) == ["prompts", "samples", "extra", "n"]
    assert signature.bind("p", samples="s", n=3).arguments == {"prompts": "p", "samples": "s", "n": 3}


def test_a_description_can_be_sent_anywhere():
    class Odd(Worker):
        def method(self, lock: threading.Lock = threading.Lock()) -> None: ...  # noqa: B008

    sent = pickle.loads(pickle.dumps(methods(Odd)))
    assert sent["method"].signature.parameters["lock"].default is None
    assert sent["method"].signature.bind().arguments == {}


def test_onload_and_offload_do_nothing_by_default():
    worker = Worker()
    assert worker.onload() == 0
    assert worker.offload() == 0
    assert worker.close() is None

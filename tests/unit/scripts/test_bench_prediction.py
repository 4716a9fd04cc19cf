"""`scripts/bench/prediction.py`: what it makes of measured and predicted seconds; and the engine that sleeps."""

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCH = Path(__file__).parents[3] / "scripts/bench"


@pytest.fixture(scope="module")
def prediction():
    spec = importlib.util.spec_from_file_location("prediction", BENCH / "prediction.py")
    module = importlib.util.module_from_spec(spec)
    path, sys.modules[spec.name] = list(sys.path), module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]
    sys.path[:] = path


def test_an_error_is_that_of_all_steps_together(prediction):
    tried = prediction.Tried([1.0, 3.0, 2.0], [1.1, 3.0, 2.2], planned=3.0)
    assert tried.error == pytest.approx(6.3 / 6.0 - 1)
    assert tried.seconds == pytest.approx(2.0)
    assert tried.document() == {"seconds": 2.0, "error": 0.05, "as_planned": 0.5, "mean": 2.0, "stalled": 0}


def test_a_step_that_others_disturbed_is_left_out_and_counted(prediction):
    tried = prediction.Tried([1.0, 1.1, 1.0, 5.0], [1.0, 1.0, 1.0, 2.0], planned=1.0)
    assert tried.document()["stalled"] == 1
    assert tried.error == pytest.approx(3.0 / 3.1 - 1)
    assert tried.seconds == pytest.approx(1.25 * 3.1 / 3.0)


def test_the_order_is_that_of_placements_that_differ(prediction):
    rows = [{"seconds": 1.0, "error": 0.0}, {"seconds": 1.04, "error": -0.1}, {"seconds": 1.2, "error": -0.2}]
    assert list(prediction.ordered(rows)) == [False, True]  # 1.0 against 1.2; 1.04 against 1.2


def test_lengths_of_the_emulation_are_those_of_its_engine(prediction):
    case = prediction.CASES["pareto"]
    rows = [{"step": step, "id": f"{step}/{number}"} for step in (2, 1) for number in range(3)]
    expected = [prediction.tokens(prediction.length("pareto", f"1/{number}")) for number in range(3)]
    first, _ = prediction.lengths_of(case, rows)
    assert first.tolist() == expected
    assert len(set(expected)) > 1


@pytest.mark.parametrize(("crowding", "seconds"), [(0.0, 2.0), (1.0, 4.0)])
def test_crowded_slots_are_slower(prediction, monkeypatch, crowding, seconds):
    from rlinf_emulation import engine as module
    from rlinf_emulation.lengths import TOKENS, EmulatedEngineConfig

    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    engine = module.EmulatedEngine(EmulatedEngineConfig(slots=3, unit_s=2.0, crowding=crowding), Path(), "cpu", 0)
    sampling = SimpleNamespace(stop_token_ids=(1,))
    engine.submit([SimpleNamespace(id=str(number), sampling=sampling) for number in range(4)])
    assert engine.collect(0.0) == []
    clock.now = seconds - 0.01
    assert engine.collect(0.0) == []
    clock.now = seconds
    assert [len(one.token_ids) for one in engine.collect(0.0)] == [TOKENS] * 3
    clock.now += 2.0  # the last one is alone
    assert len(engine.collect(0.0)) == 1
    assert engine.stats()["steps"] == 2 * TOKENS


def test_of_what_computes_the_median_counts(prediction):
    tried = prediction.Tried([1.0, 1.2, 5.0, 0.9, 1.1], [1.0] * 5, planned=1.0, sleeps=False)
    assert tried.error == pytest.approx(1 / 1.1 - 1)
    assert tried.seconds == pytest.approx(1.1)

"""What a request says does not depend on its company, its slot, or the order of things."""

import random

import numpy as np
import pytest

from rlinf_cli.api import Request, Sampling

PROMPTS = [list(range(3, 3 + n)) for n in (1, 2, 4, 7, 11)]


def batch(count=40, seed=0):
    """Groups of eight, every group with settings of its own."""
    settings = [{}, {"temperature": 0.6}, {"top_k": 5}, {"top_p": 0.8, "temperature": 1.4}, {"temperature": 0.0}]
    return [Request(f"{number // 8}/{number % 8}", np.array(PROMPTS[number // 8 % 5], np.int32),
                    Sampling(3 + 5 * (number % 7), stop_token_ids=(2, 11), seed=seed, **settings[number // 8 % 5]))
            for number in range(count)]


@pytest.fixture(scope="module")
def expected(tiny, run):
    from rlinf_torch.engine import TorchEngine
    from rlinf_torch.engine_config import TorchEngineConfig

    return run(TorchEngine(TorchEngineConfig(slots=1), tiny, "cpu", 96), batch())


@pytest.mark.parametrize("slots", [3, 64])
def test_slots(slots, expected, build, tiny, run, same):
    same(run(build(tiny, slots=slots), batch()), expected)


@pytest.mark.parametrize("seed", [1, 2])
def test_order(seed, expected, build, tiny, run, same):
    shuffled = batch()
    random.Random(seed).shuffle(shuffled)
    same(run(build(tiny, slots=7), shuffled), expected)


def test_company(expected, build, tiny, run, same):
    half = batch()[::3]
    same(run(build(tiny, slots=5), half), {request.id: expected[request.id] for request in half})


def test_an_abort_and_a_second_try(expected, build, tiny, run, same):
    engine = build(tiny, slots=6)
    others = [Request(f"other{n}", np.array([4, 5, 6], np.int32), Sampling(60)) for n in range(4)]
    engine.submit(others)
    engine.submit(batch()[:20])
    done = {}
    for _ in range(6):
        done.update((one.id, one) for one in engine.collect(timeout=0))
    engine.abort()
    done.update((one.id, one) for one in engine.collect())
    partial = {name: one for name, one in done.items() if one.finish == "abort" and not name.startswith("other")}
    assert partial
    for name, one in partial.items():
        assert one.token_ids.tolist() == expected[name].token_ids[: len(one.token_ids)].tolist()
    again = [request for request in batch() if request.id not in done or request.id in partial]
    finished = {name: one for name, one in done.items() if name in expected and name not in partial}
    same(finished | run(engine, again), expected)


def test_the_seed_matters(expected, build, tiny, run):
    other = run(build(tiny, slots=8), batch(seed=1))
    differ = [name for name in expected if expected[name].token_ids.tolist() != other[name].token_ids.tolist()]
    assert len(differ) > 20
    assert not any(name.startswith("4/") for name in differ), "greedy ones have no noise"


def test_samples_of_a_group_differ(expected):
    assert len({tuple(expected[f"0/{n}"].token_ids.tolist()[:3]) for n in range(8)}) > 4


def test_the_same_twice_is_the_same_bit_for_bit(build, tiny, run):
    first, second = (run(build(tiny, slots=6), batch()) for _ in range(2))
    for name, one in first.items():
        assert one.logprobs.tobytes() == second[name].logprobs.tobytes()


def test_samples_follow_the_models_distribution(build, tiny, run, reference):
    """First tokens of 4000 samples of one prompt against the exact probabilities: chi-square."""
    prompt = np.array([22, 7, 10, 16], np.int32)
    done = run(build(tiny, slots=128), [Request(f"{n}", prompt, Sampling(1, temperature=0.8)) for n in range(4000)])
    observed = np.bincount([one.token_ids[0] for one in done.values()], minlength=27)
    probabilities = np.exp(reference(tiny, prompt, np.array([0], np.int32), 0.8)[0].astype(np.float64))
    expected = 4000 * probabilities
    common = expected > 5
    assert common.sum() > 5
    # at most 26 degrees of freedom: above 54 once in a thousand
    assert ((observed - expected)[common] ** 2 / expected[common]).sum() < 54


def exactly(one, other):
    assert one.keys() == other.keys()
    for name, completion in one.items():
        assert completion.token_ids.tolist() == other[name].token_ids.tolist(), name
        assert completion.logprobs.tobytes() == other[name].logprobs.tobytes(), name


FAMILIES = ["qwen2", "llama", "gpt_neox"]


@pytest.mark.parametrize("family", FAMILIES)
def test_batch_invariance_is_that_of_every_bit(family, make_model, build, run):
    """Whatever the company, its order, and the slots that it leaves."""
    directory, keys = make_model(family), {"slots": 16, "batch_invariant": True}
    requests = batch()
    alone = {}
    engine = build(directory, **keys)
    for start in range(0, len(requests), 8):
        alone.update(run(engine, requests[start : start + 8]))
    exactly(run(build(directory, **keys), requests), alone)
    random.Random(3).shuffle(requests)
    exactly(run(build(directory, **keys), requests), alone)
    exactly(run(build(directory, **keys), requests[:5]), {request.id: alone[request.id] for request in requests[:5]})
    longer = [Request(f"long{n}", np.array([4, 5, 6], np.int32), Sampling(90)) for n in range(3)]
    found = run(build(directory, **keys), [*longer, *requests])
    exactly({name: one for name, one in found.items() if name in alone}, alone)


def test_batch_invariance_changes_nothing_else(expected, build, tiny, run, same):
    same(run(build(tiny, slots=32, batch_invariant=True), batch()), expected)


def test_room_for_all_slots_stays_within_the_longest_sequence(make_model, build, run):
    """A length that is no multiple of what lengths are rounded to."""
    engine = build(make_model("qwen2"), max_sequence=70, slots=4, batch_invariant=True)
    found = run(engine, [Request(name, np.array([4, 5], np.int32), Sampling(new)) for name, new in (("a", 68), ("b", 2))])
    assert [len(found[name].token_ids) for name in "ab"] == [68, 2]

"""The contract: what goes in, what comes out, and when."""

import time

import numpy as np
import pytest

from rlinf_cli.api import Request, Sampling


@pytest.fixture
def engine(build, tiny):
    return build(tiny, slots=4)


def one(name="a", prompt=(5, 6, 7), new=4, **sampling):
    return Request(name, np.array(prompt, np.int32), Sampling(new, **sampling))


def test_completions_have_one_entry_a_token(engine, run, requests):
    done = run(engine, requests(10, new=[1, 5, 2, 9, 3, 1, 4, 7, 2, 6]))
    assert [len(done[str(n)].token_ids) for n in range(10)] == [1, 5, 2, 9, 3, 1, 4, 7, 2, 6]
    for completion in done.values():
        assert completion.finish == "length"
        assert len(completion.logprobs) == len(completion.versions) == len(completion.token_ids)
        assert (completion.versions == 0).all()
        assert (completion.logprobs < 0).all()
        assert completion.token_ids.dtype == completion.versions.dtype == np.int32
        assert completion.logprobs.dtype == np.float32


def test_a_stop_token_ends_a_response_and_is_kept(engine, run):
    free = run(engine, [one(new=12)])["a"].token_ids.tolist()
    stop = free[5]
    first = free.index(stop)
    stopped = run(engine, [one(new=12, stop_token_ids=(stop, 999))])["a"]
    assert stopped.finish == "stop"
    assert stopped.token_ids.tolist() == free[: first + 1]


def test_a_stop_token_at_the_limit_is_a_stop(engine, run):
    free = run(engine, [one(new=1)])["a"].token_ids.tolist()
    assert run(engine, [one(new=1, stop_token_ids=(free[0],))])["a"].finish == "stop"


def test_completions_come_as_they_finish(engine):
    engine.submit([one("long", new=30), one("short", new=2)])
    assert [done.id for done in engine.collect()] == ["short"]
    assert engine.pending() == 1
    assert [done.id for done in engine.collect()] == ["long"]
    assert engine.pending() == 0
    assert engine.collect() == []


def test_freed_slots_are_filled_at_once(engine, run, requests):
    run(engine, requests(8, new=[30, 2, 2, 2, 2, 2, 2, 2]))
    assert engine.stats()["steps"] == 29
    assert engine.stats()["tokens"] == 30 + 7 * 2


def test_more_can_be_submitted_at_any_time(engine, run, same, requests):
    batch = requests(12, new=6)
    engine.submit(batch[:3])
    done = {}
    for request in batch[3:]:
        done.update((completion.id, completion) for completion in engine.collect(timeout=0))
        engine.submit([request])
    done.update(run(engine))
    same(done, run(engine, batch))


def test_collect_returns_after_its_time(engine):
    engine.submit([one(new=90)])
    assert engine.collect(timeout=0) == []
    assert engine.pending() == 1
    engine.pause()
    began = time.monotonic()
    assert engine.collect(timeout=0.05) == []
    assert 0.05 <= time.monotonic() - began < 1


def test_a_group_is_read_once(engine, run):
    engine_requests = [one(f"g{n}", prompt=range(3, 13), new=3) for n in range(4)]
    run(engine, engine_requests)
    assert engine.stats()["prefill_tokens"] == 10


def test_a_group_larger_than_the_slots_is_read_once(engine, run, same, build, tiny):
    group = [one(f"g{n}", prompt=range(3, 13), new=2 + n % 5) for n in range(16)]
    done = run(engine, group)
    assert engine.stats()["prefill_tokens"] == 10
    same(done, run(build(tiny, slots=16), group))


def test_groups_of_several_prompts_beside_each_other(build, tiny, run, same):
    groups = [one(f"{p}-{n}", prompt=range(3, 5 + 2 * p), new=5) for p in range(4) for n in range(5)]
    engine = build(tiny, slots=8)
    done = run(engine, groups)
    assert engine.stats()["prefill_tokens"] < 2 * (2 + 4 + 6 + 8)
    alone = {}
    for request in groups:
        alone.update(run(build(tiny, slots=1), [request]))
    same(done, alone)


def test_a_one_token_prompt(engine, run, reference, tiny):
    done = run(engine, [one(f"g{n}", prompt=[9], new=3 + n, temperature=0.0) for n in range(6)])
    expected = reference(tiny, np.array([9], np.int32), done["g5"].token_ids).argmax(-1)
    for n in range(6):
        assert done[f"g{n}"].token_ids.tolist() == expected[: 3 + n].tolist()


def test_abort_of_running_and_waiting_requests(engine):
    engine.submit([one(f"{n}", new=50) for n in range(6)])
    for _ in range(3):
        assert engine.collect(timeout=0) == []
    engine.abort(["1", "5"])
    done = {completion.id: completion for completion in engine.collect()}
    assert done.keys() == {"1", "5"}
    assert {completion.finish for completion in done.values()} == {"abort"}
    assert len(done["1"].token_ids) == len(done["1"].logprobs) == len(done["1"].versions) == 4
    assert len(done["5"].token_ids) == 0
    engine.abort()
    assert sorted(completion.id for completion in engine.collect()) == ["0", "2", "3", "4"]
    assert engine.pending() == 0


def test_an_unknown_id_can_be_aborted(engine, run):
    engine.submit([one()])
    engine.abort(["nobody"])
    assert run(engine)["a"].finish == "length"


def test_a_pause_changes_nothing(engine, run, same, requests):
    batch = requests(6, new=10)
    expected = run(engine, batch)
    engine.submit(batch)
    assert engine.collect(timeout=0) == []
    engine.pause()
    steps = engine.stats()["steps"]
    assert engine.collect(timeout=0.01) == []
    assert engine.stats()["steps"] == steps
    engine.resume()
    same(run(engine), expected)


def test_abort_while_paused_is_collected(engine):
    engine.submit([one()])
    engine.pause()
    engine.abort()
    assert [done.finish for done in engine.collect()] == ["abort"]


@pytest.mark.parametrize(("request_", "reason"), [
    (one(prompt=()), "the prompt is empty"),
    (one(prompt=[5] * 90, new=7), "a prompt of 90 tokens and a response of up to 7 do not fit max_sequence=96"),
    (one(new=0), "response of up to 0"),
    (one(prompt=[5, 27]), "outside of the model's vocabulary of 27"),
    (one(prompt=[-1]), "outside of the model's vocabulary"),
])
def test_bad_requests_are_refused(engine, request_, reason):
    with pytest.raises(ValueError, match=f"request a: .*{reason}"):
        engine.submit([one("good"), request_])
    assert engine.pending() == 0


def test_an_id_can_be_used_once_at_a_time(engine, run):
    with pytest.raises(ValueError, match="request a has been submitted already"):
        engine.submit([one(), one()])
    engine.submit([one()])
    with pytest.raises(ValueError, match="request a has been submitted already"):
        engine.submit([one()])
    run(engine)
    assert run(engine, [one()])


def test_a_request_of_exactly_max_sequence(engine, run):
    assert len(run(engine, [one(prompt=[5] * 90, new=6)])["a"].token_ids) == 6


def test_statistics(engine, run, requests):
    assert engine.stats() == {"tokens": 0, "steps": 0, "prefill_tokens": 0, "slots_used": 0.0, "shared_bytes": 0}
    run(engine, [one("a", new=3), one("b", prompt=[8], new=5)])
    assert engine.stats() == {"tokens": 8, "steps": 4, "prefill_tokens": 4, "slots_used": (2 + 2 + 1 + 1) / 16,
                              "shared_bytes": 0}


def test_memory_grows_with_need(build, tiny, run, requests):
    engine = build(tiny, max_sequence=2000, slots=128)
    assert engine.capacity == 128
    run(engine, requests(3))
    store = engine._decoder._store
    assert (store.slots, store.length) == (64, 64)
    run(engine, [one(prompt=[5] * 100, new=70)])
    assert store.length == 256


def test_close_frees_and_forgets(engine, run):
    engine.submit([one()])
    engine.collect(timeout=0)
    engine.close()
    assert engine.pending() == 0
    assert engine.collect() == []
    assert engine._decoder._store.data.numel() == 0


def test_tensors_of_the_caller_need_no_copy(engine, run):
    prompt = np.array([5, 6, 7], np.int32)
    prompt.setflags(write=False)
    assert run(engine, [Request("a", prompt, Sampling(2))])

"""New weights are taken whole or not at all, between two steps, and read back as they were sent."""

import numpy as np
import pytest
import torch

from rlinf_cli.api import Adapter, Request, Sampling, load_causal_lm
from rlinf_cli.contracts.engine import HoldingEngine
from rlinf_cli.flow.weights_layout import layout, tensor_at
from rlinf_cli.models.checksum import weights_checksum

FAMILIES = [("qwen2", {"tie_word_embeddings": True}), ("qwen3", {"head_dim": 16}), ("llama", {"attention_bias": True}),
            ("gpt_neox", {}), ("gemma2", {"head_dim": 8, "sliding_window": 96})]


@pytest.fixture(params=FAMILIES, ids=lambda family: family[0])
def pair(request, make_model):
    """Directories of two models of one architecture."""
    family, more = request.param
    return make_model(family, **more), make_model(family, seed=1, **more)


def stored(directory):
    """What a trainer publishes: each tensor once, by the name that transformers' modules give it."""
    return {name: parameter.detach() for name, parameter in load_causal_lm(directory, "float32").named_parameters()}


def one(name="a", new=8):
    return Request(name, np.array([5, 6, 7], np.int32), Sampling(new, temperature=0.0))


def test_the_checksum_is_that_of_the_directory(pair, build):
    assert build(pair[0]).weights_checksum() == weights_checksum(stored(pair[0]).items())


def test_an_update_makes_it_another_model(pair, build, run, same):
    first, second = build(pair[0]), build(pair[1])
    before = run(first, [one()])["a"]
    first.update_weights(3, reversed(list(stored(pair[1]).items())))
    assert first.version == 3
    assert first.weights_checksum() == weights_checksum(stored(pair[1]).items())
    after, expected = run(first, [one()])["a"], run(second, [one()])["a"]
    assert after.token_ids.tolist() == expected.token_ids.tolist() != before.token_ids.tolist()
    np.testing.assert_allclose(after.logprobs, expected.logprobs, atol=1e-6)
    assert (after.versions == 3).all()
    assert (before.versions == 0).all()


@pytest.mark.parametrize("damage", ["missing", "left over", "wrong shape"])
def test_what_does_not_fit_is_named_and_the_old_weights_hold(pair, build, run, damage):
    engine = build(pair[0])
    before, checksum = run(engine, [one()])["a"], engine.weights_checksum()
    weights = stored(pair[1])
    name = list(weights)[-1]
    if damage == "missing":
        del weights[name]
    elif damage == "wrong shape":
        weights[name] = torch.zeros(3, 1)
    else:
        name = "lm_head.adapter"
        weights[name] = torch.zeros(2)
    with pytest.raises(ValueError, match=f"{damage}: {name}"):
        engine.update_weights(1, weights.items())
    assert engine.version == 0
    assert engine.weights_checksum() == checksum
    after = run(engine, [one()])["a"]
    assert after.token_ids.tolist() == before.token_ids.tolist()
    assert after.logprobs.tolist() == before.logprobs.tolist()


def test_a_sender_that_breaks_off_leaves_the_old_weights(pair, build):
    def half():
        yield from list(stored(pair[1]).items())[:3]
        raise ConnectionError("gone")

    engine = build(pair[0])
    checksum = engine.weights_checksum()
    with pytest.raises(ConnectionError):
        engine.update_weights(1, half())
    assert (engine.version, engine.weights_checksum()) == (0, checksum)


def test_a_buffer_of_the_sender_can_be_used_again(pair, build):
    def through_one_buffer():
        buffer = torch.empty(max(tensor.numel() for tensor in stored(pair[1]).values()))
        for name, tensor in stored(pair[1]).items():
            view = buffer[: tensor.numel()].view(tensor.shape)
            view.copy_(tensor)
            yield name, view
            buffer.fill_(float("nan"))

    engine = build(pair[0])
    engine.update_weights(1, through_one_buffer())
    assert engine.weights_checksum() == weights_checksum(stored(pair[1]).items())


def test_a_running_request_goes_on_under_the_new_weights(pair, build, run):
    engine = build(pair[0], slots=2)
    alone = run(build(pair[0]), [one(new=20)])["a"]
    engine.submit([one(new=20)])
    for _ in range(4):
        assert engine.collect(timeout=0) == []
    engine.update_weights(7, stored(pair[1]).items())
    done = run(engine)["a"]
    assert done.versions.tolist() == [0] * 5 + [7] * 15
    assert done.token_ids[:5].tolist() == alone.token_ids[:5].tolist()
    assert done.token_ids.tolist() != alone.token_ids.tolist()


def test_a_group_does_not_share_a_prefill_of_older_weights(pair, build, run):
    """A request that starts after an update must not continue keys and values of the old weights."""
    engine = build(pair[0], slots=2)
    engine.submit([one("long", new=40), one("short", new=2), one("late", new=10)])
    assert [done.id for done in engine.collect()] == ["short"]
    engine.update_weights(1, stored(pair[1]).items())
    done = run(engine)
    assert done["late"].token_ids.tolist() == run(build(pair[1]), [one("late", new=10)])["late"].token_ids.tolist()
    assert (done["late"].versions == 1).all()


def test_an_engine_in_bfloat16_takes_float32(make_model, build):
    directory = make_model("qwen2")
    engine = build(directory, dtype="bfloat16")
    engine.update_weights(1, stored(directory).items())
    rounded = {name: tensor.bfloat16() for name, tensor in stored(directory).items()}
    assert engine.weights_checksum() == weights_checksum(rounded.items())


def under(directory, prompt, response, first):
    """Log-probabilities of the response's tokens from `first` on, each from a fresh forward pass over all before it."""
    model = load_causal_lm(directory, "float32")
    tokens = torch.from_numpy(np.concatenate([prompt, response]).astype(np.int64))
    with torch.no_grad():
        rows = [torch.log_softmax(model(input_ids=tokens[None, :end], use_cache=False).logits[0, -1].float(), -1)[tokens[end]]
                for end in range(len(prompt) + first, len(tokens))]
    return torch.stack(rows).numpy()


def interrupted(engine, second, batch, steps=4, recompute=True):
    """What becomes of the requests when weights of version 7 come after some decode steps."""
    engine.submit(batch)
    done = [one for _ in range(steps) for one in engine.collect(timeout=0)]
    engine.update_weights(7, stored(second).items(), recompute=recompute)
    while engine.pending():
        done += engine.collect()
    return {one.id: one for one in done}


def mixed(count=7, new=16):
    """Prompts of several lengths, one of them shared by a group."""
    noise = np.random.default_rng(2)
    prompts = [noise.integers(3, 61, 1 + 3 * number).astype(np.int32) for number in range(count)]
    return [Request(f"{number}", prompts[number], Sampling(new)) for number in range(count)] + [
        Request(f"twin-{number}", prompts[-1], Sampling(new)) for number in range(3)]


def test_recomputed_a_response_goes_on_as_if_the_new_weights_had_read_it(pair, build):
    """Scenario S6: interrupted at token k of n, everything has length n, and what comes later is of the new weights."""
    batch = mixed()
    done = interrupted(build(pair[0], slots=8), pair[1], batch)
    for request in batch:
        one = done[request.id]
        versions = one.versions.tolist()
        assert len(one.token_ids) == len(one.logprobs) == len(versions) == 16
        assert versions == sorted(versions)
        assert set(versions) <= {0, 7}
        first = versions.index(7)
        np.testing.assert_allclose(one.logprobs[first:], under(pair[1], request.prompt_ids, one.token_ids, first), atol=1e-5)
        if first:
            expected = under(pair[0], request.prompt_ids, one.token_ids[:first], 0)
            np.testing.assert_allclose(one.logprobs[:first], expected, atol=1e-5)
    assert {done[request.id].versions[0] for request in batch} == {0, 7}, "some must wait for a slot until after the update"


def test_continued_a_response_keeps_what_the_old_weights_have_read(pair, build):
    batch = mixed(1)
    done = interrupted(build(pair[0], slots=8), pair[1], batch, recompute=False)
    recomputed = interrupted(build(pair[0], slots=8), pair[1], batch)
    for request in batch:
        one, other = done[request.id], recomputed[request.id]
        assert one.versions.tolist() == other.versions.tolist()
        first = one.versions.tolist().index(7)
        assert one.token_ids[:first].tolist() == other.token_ids[:first].tolist()
        later = under(pair[1], request.prompt_ids, one.token_ids, first)
        assert np.abs(one.logprobs[first:] - later).max() > 1e-3


def test_recomputing_goes_in_bounded_pieces(make_model, build, monkeypatch):
    from rlinf_torch import engine as module

    first, second, batch = make_model("qwen2"), make_model("qwen2", seed=1), mixed()
    expected = interrupted(build(first, slots=16), second, batch)
    monkeypatch.setattr(module, "PREFILL_TOKENS", 20)
    sizes = []
    engine = build(first, slots=16)
    prefill = engine._decoder.prefill
    monkeypatch.setattr(engine._decoder, "prefill", lambda tokens, *rest: sizes.append(tokens.shape) or prefill(tokens, *rest))
    done = interrupted(engine, second, batch)
    assert all(rows * width <= 20 or rows == 1 for rows, width in sizes)
    assert all(done[name].token_ids.tolist() == one.token_ids.tolist() for name, one in expected.items())


def test_recomputing_with_nothing_under_way(pair, build, run):
    engine = build(pair[0])
    engine.update_weights(1, stored(pair[1]).items(), recompute=True)
    assert (run(engine, [one()])["a"].versions == 1).all()


def test_a_response_that_was_recomputed_and_aborted_keeps_its_lengths(pair, build):
    engine = build(pair[0], slots=4)
    engine.submit([one(new=40)])
    for version in range(1, 4):
        assert engine.collect(timeout=0) == []
        engine.update_weights(version, stored(pair[version % 2]).items(), recompute=version % 2 == 1)
    engine.abort()
    (done,) = engine.collect()
    assert done.finish == "abort"
    assert len(done.token_ids) == len(done.logprobs) == len(done.versions) == 4
    assert done.versions.tolist() == [0, 0, 1, 2]


def test_after_recomputing_a_late_one_joins_its_group(pair, build, run):
    """The prompt has been read under the new weights already: it is not read again."""
    engine = build(pair[0], slots=2)
    engine.submit([one("long", new=40), one("short", new=3), one("late", new=10)])
    assert engine.collect(timeout=0) == []
    engine.update_weights(1, stored(pair[1]).items(), recompute=True)
    read = engine.stats()["prefill_tokens"]
    done = run(engine)
    assert engine.stats()["prefill_tokens"] == read
    assert done["late"].token_ids.tolist() == run(build(pair[1]), [one("late", new=10)])["late"].token_ids.tolist()


def published(directory):
    """The directory's weights as views of one piece of memory, as a publisher lays them out; and that memory."""
    weights = stored(directory)
    entries, size = layout(weights.items())
    memory = torch.zeros(size, dtype=torch.uint8)
    views = {entry.name: tensor_at(memory[entry.offset :], entry) for entry in entries}
    for name, tensor in weights.items():
        views[name].copy_(tensor)
    return views, memory


def test_held_where_they_are_they_act_as_copies(pair, build, run, same):
    copying, holding, (views, memory) = build(pair[0], slots=2), build(pair[0], slots=2), published(pair[1])
    before = memory.clone()
    assert isinstance(holding, HoldingEngine)
    for engine in copying, holding:
        engine.submit([one(new=20)])
        assert engine.collect(timeout=0) == []
    copying.update_weights(7, views.items())
    holding.hold_weights(7, views.items())
    assert holding.version == 7
    assert holding.weights_checksum() == weights_checksum(views.items())
    same(run(holding), run(copying))
    assert torch.equal(memory, before)


def test_of_held_weights_only_those_in_another_order_are_copied(pair, build):
    engine, (views, memory) = build(pair[0]), published(pair[1])
    engine.hold_weights(1, views.items())
    held = engine.stats()["shared_bytes"]
    assert held > 0.6 * memory.nbytes
    first, last = memory.data_ptr(), memory.data_ptr() + memory.nbytes
    there = [place.view for place in engine._decoder.places().values() if first <= place.view.data_ptr() < last]
    assert sum(view.nbytes for view in there) == held
    assert engine.weights_in_place() == {}, "a trainer must not be given what others read"


def test_held_weights_can_be_overwritten_once_the_next_have_come(pair, build, run, same):
    engine, (views, memory), (later, _) = build(pair[0]), published(pair[1]), published(pair[0])
    engine.hold_weights(1, views.items())
    engine.hold_weights(2, later.items())
    memory.fill_(255)
    assert engine.weights_checksum() == weights_checksum(later.items())
    same(run(engine, [one()]), run(build(pair[0]), [one()]))
    engine.hold_weights(3, published(pair[1])[0].items())
    engine.update_weights(4, stored(pair[0]).items())
    assert (engine.version, engine.stats()["shared_bytes"]) == (4, 0)
    assert engine.weights_in_place()


@pytest.mark.parametrize("damage", ["missing", "left over", "wrong shape"])
def test_what_cannot_be_held_is_named_and_the_old_weights_hold(pair, build, damage):
    engine, (views, _) = build(pair[0]), published(pair[1])
    checksum, name = engine.weights_checksum(), list(views)[-1]
    if damage == "missing":
        del views[name]
    elif damage == "wrong shape":
        views[name] = torch.zeros(())
    else:
        name = "lm_head.adapter"
        views[name] = torch.zeros(2)
    with pytest.raises(ValueError, match=f"{damage}: {name}"):
        engine.hold_weights(1, views.items())
    assert (engine.version, engine.weights_checksum()) == (0, checksum)


def test_tensors_that_lie_apart_are_put_together(pair, build):
    engine, weights = build(pair[0]), stored(pair[1])
    engine.hold_weights(1, weights.items())
    assert engine.weights_checksum() == weights_checksum(weights.items())


def test_weights_that_are_to_leave_the_device_are_copied(pair, build):
    engine, (views, memory) = build(pair[0], offload="weights"), published(pair[1])
    engine.hold_weights(1, views.items())
    expected = weights_checksum(stored(pair[1]).items())
    memory.fill_(0)
    assert engine.release_memory() > 0
    assert engine.weights_checksum() == expected


def test_another_type_is_copied_and_rounded(make_model, build):
    directory = make_model("qwen2")
    engine = build(directory, dtype="bfloat16")
    engine.hold_weights(1, stored(directory).items())
    assert engine.stats()["shared_bytes"] == 0
    rounded = {name: tensor.bfloat16() for name, tensor in stored(directory).items()}
    assert engine.weights_checksum() == weights_checksum(rounded.items())


def test_an_adapter_after_held_weights_writes_nothing_into_them(make_model, build, run, same):
    directory = make_model("qwen2")
    engine, (views, memory) = build(directory), published(make_model("qwen2", seed=1))
    before, target = memory.clone(), "model.layers.0.mlp.down_proj.weight"
    outputs, inputs = views[target].shape
    factors = {f"{target}.lora_A": torch.ones(1, inputs), f"{target}.lora_B": torch.ones(outputs, 1)}
    engine.hold_weights(1, views.items())
    engine.update_weights(2, factors.items(), Adapter(1, 0.5, (target,)))
    expected = build(directory)
    expected.update_weights(2, factors.items(), Adapter(1, 0.5, (target,)))
    same(run(engine, [one()]), run(expected, [one()]))
    assert torch.equal(memory, before)


def test_room_for_what_is_copied_is_used_in_turn(make_model, build):
    engine, versions = build(make_model("qwen2")), [published(make_model("qwen2", seed=seed))[0] for seed in range(2)]
    seen = []
    for version in range(6):
        engine.hold_weights(version, versions[version % 2].items())
        assert engine.weights_checksum() == weights_checksum(versions[version % 2].items())
        seen.append(engine._decoder.places()["model.layers.0.self_attn.q_proj.weight"].view.data_ptr())
    assert seen == seen[:2] * 3
    assert seen[0] != seen[1], "the old weights are in use until the new ones are complete"
    with pytest.raises(ValueError, match="missing"):
        engine.hold_weights(9, list(versions[0].items())[1:])
    assert engine.weights_checksum() == weights_checksum(versions[1].items())

"""Two ranks in two real processes over gloo: the same gradient as one rank, and the same end on both."""

import json
import pickle
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rlinf_cli.api import Ranks, weights_checksum
from rlinf_cli.rl.aggregation import share_count, token_shares
from rlinf_cli.rl.packing import partition
from rlinf_torch.distributed import BUCKET_ELEMENTS, _buckets, _store

EVEN, LOPSIDED, ONE_IDLE, SEQUENCE_MEAN, POISONED, NOTHING, PIECES, PIECES_OF_ONE, OTHER_WEIGHTS = range(9)


@pytest.fixture(scope="module")
def jobs(make_items, samples):
    items, means = make_items(samples), make_items(samples, "sequence-mean")
    shares = partition([len(sample) for sample in samples], 2)

    def split(whole, parts, poison=None):
        return {"items": [[whole[i] for i in part] for part in parts], "poison": poison}

    return [split(items, shares), split(items, [[0], range(1, len(items))]), split(items, [range(len(items)), []]),
            split(means, shares), split(items, shares, poison=1), split(items, [[], []]),
            in_pieces(samples, items, [[[0, 1], [2, 3, 4]], [[5], [], [6, 7, 8, 9], [10]]]),
            in_pieces(samples, items, [[[], [0, 4], range(5, 11), [1, 2, 3]], []])]


def in_pieces(samples, items, places):
    """Which items each rank is given, call by call."""
    shares = token_shares([one.mask for one in samples], "token-mean", 16)
    larger = [replace(item, weights=share) for item, share in zip(items, shares, strict=True)]
    return {"pieces": [[[larger[i] for i in call] for call in calls] for calls in places],
            "scale": 1 / share_count([one.mask for one in samples], "token-mean")}


@pytest.fixture(scope="session")
def answers_of(run_two_ranks):
    """`answers_of(out, model, jobs, **keys)`: of each rank, for each job."""

    def answer(out, model, jobs, **keys):
        (out / "jobs").write_bytes(pickle.dumps((model, keys, jobs)))
        run_two_ranks(Path(__file__).with_name("rank.py"), out / "jobs", out)
        return [json.loads((out / f"{rank}.json").read_text()) for rank in range(2)]

    return answer


@pytest.fixture(scope="module")
def answers(answers_of, tmp_path_factory, make_model, jobs):
    """And where the checkpoints are."""
    out = tmp_path_factory.mktemp("ranks")
    return answers_of(out, make_model(), [*jobs, {"load": [out / "start", out / "0"]}]), out


def gradient(directory):
    moments = load_file(directory / "optimizer.safetensors")
    return torch.cat([moments[name].flatten() for name in sorted(moments) if name.endswith("exp_avg")])


@pytest.mark.parametrize("job", [EVEN, LOPSIDED, ONE_IDLE, SEQUENCE_MEAN])
def test_the_gradient_is_that_of_one_rank(answers, jobs, build, grpo, tmp_path, job):
    """Scenario N4."""
    (first, second), out = answers
    assert first[job] == second[job]
    alone = build(max_grad_norm=1e9, micro_batch_tokens=60)
    metrics = alone.train_step([item for part in jobs[job]["items"] for item in part], grpo.loss, 1.0)
    alone.save(tmp_path)
    expected = gradient(tmp_path)
    assert float((gradient(out / f"{job}") - expected).norm() / expected.norm()) < 1e-6
    assert first[job]["metrics"] == pytest.approx(metrics, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("job", [PIECES, PIECES_OF_ONE])
def test_nor_does_it_depend_on_how_often_each_rank_is_called(answers, jobs, build, grpo, tmp_path, job):
    (first, second), out = answers
    assert first[job] == second[job]
    alone = build(max_grad_norm=1e9, micro_batch_tokens=60)
    metrics = alone.train_step([item for part in jobs[EVEN]["items"] for item in part], grpo.loss, 1.0)
    alone.save(tmp_path)
    expected = gradient(tmp_path)
    assert float((gradient(out / f"{job}") - expected).norm() / expected.norm()) < 1e-6
    assert first[job]["metrics"] == pytest.approx(metrics, rel=1e-5, abs=1e-7)


def test_an_adapter_begins_and_moves_alike_on_both(answers_of, make_model, jobs, build, grpo, tmp_path):
    lora = {"lora_rank": 4, "lora_alpha": 8.0}
    first, second = answers_of(tmp_path, make_model(), jobs[:1], **lora)
    assert first == second
    torch.manual_seed(0)
    alone = build(max_grad_norm=1e9, micro_batch_tokens=60, **lora)
    metrics = alone.train_step([item for part in jobs[EVEN]["items"] for item in part], grpo.loss, 1.0)
    (tmp_path / "alone").mkdir()
    alone.save(tmp_path / "alone")
    expected = gradient(tmp_path / "alone")
    assert float((gradient(tmp_path / "0") - expected).norm() / expected.norm()) < 1e-6
    assert first[0]["metrics"] == pytest.approx(metrics, rel=1e-5, abs=1e-7)


def test_numbers_that_are_not_finite_on_one_rank_stop_both(answers, build):
    error = "FloatingPointError: the loss is nan in optimiser step 1; the weights were left as they were"
    for rank in answers[0]:
        assert rank[POISONED] == {"error": error, "weights": weights_checksum(build().named_weights())}


def test_nothing_to_train_is_an_error_on_both(answers):
    for rank in answers[0]:
        assert rank[NOTHING]["error"] == "ValueError: an optimiser step needs at least one trained token"


def test_ranks_that_hold_different_weights_are_an_error_on_both(answers):
    for rank in answers[0]:
        error = rank[OTHER_WEIGHTS]["error"]
        assert error.startswith("RunError: the trainer's ranks loaded different weights (rank 0 ")


def test_buckets_keep_order_and_size():
    tensors = [torch.empty(size, device="meta") for size in (3, BUCKET_ELEMENTS, 5, BUCKET_ELEMENTS - 5, 1, 2**27, 7)]
    buckets = _buckets(tensors)
    assert [tensor.numel() for bucket in buckets for tensor in bucket] == [tensor.numel() for tensor in tensors]
    assert [len(bucket) for bucket in buckets] == [1, 1, 2, 1, 1, 1]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's table of sockets")
def test_the_meeting_point_listens_at_the_given_address_only(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    store = _store(Ranks(0, 1, f"tcp://127.0.0.1:{port}"))
    tables = [Path("/proc/net") / name for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    listening = {row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}
    assert listening == {f"0100007F:{port:04X}"}
    del store

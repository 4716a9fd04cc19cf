from __future__ import annotations

import pickle
import socket

import numpy as np
import pytest
import torch

from rlinf_cli.flow.errors import SerializationError
from rlinf_cli.flow.frames import LARGE, FrameError, FrameReader, dump, is_tensor, load, pack, pack_bytes, unpack


def through(item):
    pickled = dump(item)
    return load(pickled.stream(), [buffer.raw() for buffer in pickled.buffers])


class Awkward:
    def __reduce__(self):
        raise RuntimeError("not today")


class TestItems:
    @pytest.mark.parametrize("item", [None, 3, "text", b"", b"x" * 10, {"a": [1, (2.5, None)]}, ValueError("x").args], ids=repr)
    def test_plain_objects(self, item):
        assert through(item) == item

    def test_large_bytes_are_not_copied(self):
        item = bytes(LARGE)
        assert any(piece is item for piece in dump([item]).pieces)

    @pytest.mark.parametrize("item", [bytes(LARGE) + b"end", bytearray(b"ab" * LARGE), "ä" * LARGE],
                             ids=["bytes", "bytearray", "text"])
    def test_large_bytes_nested(self, item):
        back = through({"deep": [(item, 1)]})["deep"][0][0]
        assert back == item
        assert type(back) is type(item)

    def test_large_arrays_stay_outside(self):
        array = np.arange(LARGE, dtype=np.int32)
        pickled = dump({"a": array, "small": np.arange(3)})
        assert [buffer.raw().nbytes for buffer in pickled.buffers] == [array.nbytes]
        assert pickled.stream_size < 1000
        assert pickled.size == pickled.stream_size + array.nbytes

    @pytest.mark.parametrize("array", [
        np.zeros((0, 3), np.float64), np.array(5), np.arange(12).reshape(3, 4)[:, ::2],
        np.asfortranarray(np.arange(2 * LARGE).reshape(2, -1)), np.arange(4 * LARGE).reshape(2, -1)[:, ::2],
        np.array([1, "x", None], object), np.zeros(LARGE, [("a", "i4"), ("b", "f8")]), np.array(["é"] * 3),
        np.arange(LARGE, dtype=">i4"), np.zeros(LARGE, np.bool_),
    ])  # fmt: skip
    def test_arrays(self, array):
        back = through([array])[0]
        np.testing.assert_array_equal(back, array)
        assert back.dtype == array.dtype
        assert back.flags.f_contiguous == array.flags.f_contiguous or not array.flags.c_contiguous

    def test_a_read_only_source(self):
        array = np.arange(LARGE)
        array.flags.writeable = False
        np.testing.assert_array_equal(through(array), array)

    def test_an_exception_class_and_an_exception(self):
        assert through(KeyError) is KeyError
        assert through(ValueError("x")).args == ("x",)

    @pytest.mark.parametrize("item", [Awkward(), [Awkward()], lambda: 0, (x for x in "ab"), socket.socket],
                             ids=["awkward", "nested", "lambda", "generator", "class"])
    def test_what_cannot_be_sent_says_so(self, item):
        if item is socket.socket:
            with socket.socket() as item, pytest.raises(SerializationError, match="type socket cannot be sent"):
                dump(item)
            return
        with pytest.raises(SerializationError, match=f"an item of type {type(item).__name__} cannot be sent") as caught:
            dump(item)
        assert isinstance(caught.value, TypeError)

    def test_endless_nesting_says_so(self):
        item: list = []
        for _ in range(100_000):
            item = [item]
        with pytest.raises(SerializationError, match="recursion"):
            dump(item)


class TestTensors:
    @pytest.mark.parametrize("tensor", [
        torch.arange(10), torch.zeros(0, 3), torch.tensor(3.5, dtype=torch.bfloat16), torch.randn(4, 6).t(),
        torch.randn(LARGE).to(torch.bfloat16), torch.randn(LARGE, 2)[:, 0], torch.tensor([True, False]),
        torch.randn(3, dtype=torch.complex64).conj(), torch.randn(LARGE, requires_grad=True), torch.randn(5).half(),
        torch.ones(3).to(torch.float8_e4m3fn),
    ], ids=lambda tensor: f"{tensor.dtype}-{tuple(tensor.shape)}")  # fmt: skip
    def test_tensors(self, tensor):
        back = through([tensor])[0]
        assert torch.equal(back.to(torch.complex64), tensor.to(torch.complex64))
        assert (back.dtype, back.shape, back.requires_grad) == (tensor.dtype, tensor.shape, tensor.requires_grad)

    def test_only_what_a_view_shows_is_sent(self):
        assert dump(torch.zeros(1_000_000)[:10]).size < 1000

    def test_large_tensors_are_marked_as_writable(self):
        pickled = dump([torch.zeros(LARGE), np.zeros(LARGE)])
        assert [is_tensor(buffer) for buffer in pickled.buffers] == [True, False]

    def test_read_only_bytes_are_copied(self):
        pickled = dump(torch.zeros(LARGE))
        back = load(pickled.stream(), [bytes(buffer.raw()) for buffer in pickled.buffers])
        back += 1
        assert back.sum() == LARGE

    def test_a_parameter_keeps_its_type(self):
        parameter = torch.nn.Parameter(torch.ones(3))
        assert isinstance(through(parameter), torch.nn.Parameter)

    def test_a_sparse_tensor_goes_torchs_way(self):
        sparse = torch.eye(3).to_sparse()
        assert torch.equal(through(sparse).to_dense(), torch.eye(3))

    def test_a_gradient_history_is_refused(self):
        with pytest.raises(SerializationError, match=r"detach\(\)"):
            dump(torch.ones(3, requires_grad=True) * 2)

    def test_other_reducers_are_honoured(self):
        import copyreg

        class Point:
            pass

        copyreg.pickle(Point, lambda point: (int, ("7",)))
        try:
            assert through(Point()) == 7
        finally:
            del copyreg.dispatch_table[Point]


class TestFrames:
    @pytest.fixture
    def pair(self):
        ends = socket.socketpair()
        yield ends
        for end in ends:
            end.close()

    def receive(self, reader, sock, count):
        frames: list[object] = []
        while len(frames) < count:
            frames += [unpack(frame) for frame in reader.receive(sock)]
        return frames

    def test_frames_come_whole_and_in_order(self, pair):
        pair[0].sendall(pack([("a", 1)]) + pack([("b", 2), ("c",)]) + pack([]))
        assert self.receive(FrameReader(1000), pair[1], 3) == [[("a", 1)], [("b", 2), ("c",)], []]

    def test_a_frame_in_pieces(self, pair):
        data = pack([("a", bytes(1000))])
        reader = FrameReader(10_000)
        for place in range(0, len(data), 100):
            pair[0].sendall(data[place : place + 100])
            frames = [unpack(frame) for frame in reader.receive(pair[1])]
            assert len(frames) == (place + 100 >= len(data))

    def test_frames_larger_than_the_buffer(self, pair):
        import threading

        frames = [pack([("big", bytes([n]) * 1_000_000)]) + pack([("small", n)]) for n in range(3)]
        sender = threading.Thread(target=lambda: pair[0].sendall(b"".join(frames)))
        sender.start()
        received = self.receive(FrameReader(1 << 30), pair[1], 6)
        sender.join()
        assert [message[0][0] for message in received] == ["big", "small"] * 3
        assert received[4] == [("big", b"\2" * 1_000_000)]

    def test_a_frame_over_the_limit_is_refused_before_it_is_read(self, pair):
        pair[0].sendall(pack_bytes(bytes(100)))
        with pytest.raises(FrameError, match="100 bytes where 99"):
            list(FrameReader(99).receive(pair[1]))

    def test_the_end_is_an_error(self, pair):
        pair[0].close()
        with pytest.raises(EOFError):
            list(FrameReader(99).receive(pair[1]))


def test_a_stream_of_one_piece_is_not_copied():
    pickled = dump(b"x" * 100)
    assert pickled.stream() is pickled.pieces[0]
    assert pickle.loads(pickled.stream()) == b"x" * 100

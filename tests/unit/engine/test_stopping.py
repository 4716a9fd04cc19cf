"""Texts that end a response."""

import numpy as np
import pytest

from rlinf_cli.contracts.engine import Request, Sampling
from rlinf_cli.models.load import load_tokenizer
from rlinf_torch.stopping import Stopping


def request(name, new=40, **sampling):
    return Request(name, np.array([5, 6, 7], np.int32), Sampling(new, **sampling))


def first_end(tokenizer, tokens, text):
    """Which token completes the text first."""
    return next(end for end in range(1, len(tokens) + 1) if text in tokenizer.decode(tokens[:end])) - 1


def test_a_response_ends_with_the_token_that_completes_a_text(tiny, build, run):
    engine, tokenizer = build(tiny), load_tokenizer(tiny)
    free = {name: run(engine, [request(name)])[name].token_ids.tolist() for name in "abcdef"}
    for name, tokens in free.items():
        text = tokenizer.decode(tokens)
        for wanted in (text[3:5], text[10:13]):
            (done,) = run(engine, [request(name, stop=("never said", wanted))]).values()
            assert done.token_ids.tolist() == tokens[: first_end(tokenizer, tokens, wanted) + 1]
            assert done.finish == "stop"


def test_others_go_on(tiny, build, run):
    engine, tokenizer = build(tiny), load_tokenizer(tiny)
    text = tokenizer.decode(run(engine, [request("a")])["a"].token_ids.tolist())
    done = run(engine, [request("a", stop=(text[2:4],)), request("b")])
    assert done["a"].finish == "stop"
    assert done["b"].token_ids.tolist() == run(engine, [request("b")])["b"].token_ids.tolist()


def test_an_empty_text_is_refused(tiny, build):
    engine = build(tiny)
    with pytest.raises(ValueError, match="an empty text"):
        engine.submit([request("a", stop=("",))])
    assert engine.pending() == 0


def test_a_text_of_several_tokens_some_of_which_hold_more(tmp_path):
    """As pieces of real tokenizers do: `></` and `>\\n`."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    pieces = ["<pad>", "a", "<", "/", "s", "></", ">", ">\n", "</", "é", "x>y"]
    made = Tokenizer(models.WordLevel({piece: number for number, piece in enumerate(pieces)}, "<pad>"))
    made.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>").save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    watch = Stopping(tmp_path).watch(("</s>",))
    for tokens, ends in [([1, 2, 3, 4, 6], True), ([8, 4, 7], True), ([8, 4, 5], True), ([8, 4, 10], False), ([8, 4], False),
                         ([9, 8, 4, 6], True), ([1, 6], False), ([8, 1, 4, 6], False)]:
        assert watch.completes(tokens) == ends, tokens
    assert Stopping(tmp_path).watch(()) is None

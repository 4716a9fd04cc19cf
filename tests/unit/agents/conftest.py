import asyncio

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from rlinf_cli.config.sections import ToolsConfig
from rlinf_cli.contracts.engine import Completion, Sampling
from rlinf_cli.contracts.tool import ToolError, ToolSpec
from rlinf_cli.rl.trajectory import Prompt
from rlinf_cli.workers.agents.chat import ChatTemplate
from rlinf_cli.workers.agents.conversation import Limits, Surroundings, begin
from rlinf_cli.workers.agents.toolbox import Toolbox
from rlinf_cli.workers.prompts import PromptEncoder

SPECIAL = ["<pad>", "<end>"]
QWEN_LIKE = (  # thoughts of earlier turns are left out, as Qwen3's template does
    "{% for m in messages %}{{ '[' + m.role + ']' }}"
    "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}"
    "{{ '<end>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}")


@pytest.fixture(scope="session")
def letters(tmp_path_factory):
    """A directory with a tokenizer of one token a byte, two special ones, and a chat template."""
    import json

    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({piece: number for number, piece in enumerate([*SPECIAL, *alphabet])}, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), decoders.ByteLevel()
    directory = tmp_path_factory.mktemp("letters")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", pad_token="<pad>")
    tokenizer.chat_template = QWEN_LIKE
    tokenizer.save_pretrained(directory)
    (directory / "config.json").write_text(json.dumps({"model_type": "qwen2", "eos_token_id": 1}))
    return directory


@pytest.fixture(scope="session")
def encoder(letters):
    return PromptEncoder(letters, 400)


class Scripted:
    """A policy that says what it is told to, a text a turn; `|` is its end token."""

    def __init__(self, encoder, *said, version=3):
        self.encoder, self.said, self.version, self.asked = encoder, list(said), version, []

    async def answer(self, request, episode, fresh):
        self.asked.append((request, episode, fresh))
        await asyncio.sleep(0)
        text = self.said.pop(0)
        finish = "stop" if text.endswith("|") or text.endswith(tuple(request.sampling.stop or ("\0",))) else "length"
        ids = self.encoder.ids(text.removesuffix("|")).tolist() + [1] * text.endswith("|")
        ids = ids[: request.sampling.max_new_tokens]
        finish = finish if len(ids) < request.sampling.max_new_tokens else "length"
        return Completion(request.id, np.array(ids, np.int32), np.full(len(ids), -0.5, np.float32),
                          np.full(len(ids), self.version, np.int32), finish)


class Echo:
    """A tool that says back what it is asked."""

    def __init__(self, fails=0, cacheable=False, seconds=0.0):
        self.fails, self.cacheable, self.seconds, self.called = fails, cacheable, seconds, []

    def specs(self):
        return [ToolSpec("echo", "Say it again.", {"type": "object", "properties": {"text": {"type": "string"}},
                                                   "required": ["text"]}, self.cacheable)]

    async def open(self):
        self.is_open = True

    async def call(self, name, arguments):
        self.called.append(arguments["text"])
        await asyncio.sleep(self.seconds)
        if arguments["text"] == "wrong":
            raise ToolError("you asked for it.")
        if self.fails:
            self.fails -= 1
            raise OSError("the line is down")
        return f"echo {arguments['text']}"

    async def close(self):
        self.is_open = False


@pytest.fixture
def scripted(encoder):
    """`scripted(*said)`: a policy that says that."""
    return lambda *said, **settings: Scripted(encoder, *said, **settings)


@pytest.fixture
def echo():
    return Echo


@pytest.fixture
def run():
    return asyncio.run


@pytest.fixture
def dialogue(encoder, letters):
    """`dialogue(policy, tools=..., turns=..., tokens=..., shown=..., prompt=...)`: one that has begun, and its toolbox opened."""

    def made(policy, *tools, turns=8, tokens=400, shown=100, prompt=None, new=60, config=None):
        box = Toolbox(tools, config or ToolsConfig(timeout_s=5.0, retries=1))
        asyncio.run(box.open())
        around = Surroundings(policy, encoder, ChatTemplate(encoder.tokenizer, str(letters)), box, Limits(turns, tokens, shown))
        return begin("0-7/0002", prompt or Prompt("0-7", text="q?"), Sampling(new, stop_token_ids=(1,)), around)

    return made

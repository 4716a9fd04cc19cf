"""What is kept for the backward pass: less of it, and the same gradient."""

import pytest
import torch
from safetensors.torch import load_file
from torch.autograd.graph import saved_tensors_hooks

from rlinf_cli.api import load_causal_lm
from rlinf_torch.activations import in_host_memory
from rlinf_torch.microbatch import micro_batch

CHOICES = ("keep", "recompute", "offload")


def kept(trainer, items, loss):
    """Bytes of the distinct tensors kept for the backward passes of a step, the model's own apart; one micro-batch."""
    own = {tensor.untyped_storage().data_ptr() for tensor in trainer._policy.model.state_dict().values()}
    alive = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            alive[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        trainer.train_step(items, loss, 1.0)
    return sum(alive.values())


@pytest.mark.parametrize("lora", [{}, {"lora_rank": 4}], ids=["weights", "lora"])
def test_recomputing_keeps_less_and_the_gradient(build, make_model, samples, make_items, grpo, tmp_path, lora):
    gradients, sizes, directory = {}, {}, make_model(num_hidden_layers=6)
    for choice in CHOICES:
        torch.manual_seed(0)
        trainer = build(directory, activations=choice, max_grad_norm=1e9, **lora)
        sizes[choice] = kept(trainer, make_items(samples), grpo.loss)
        (tmp_path / choice).mkdir()
        trainer.save(tmp_path / choice)
        moments = load_file(tmp_path / choice / "optimizer.safetensors")
        gradients[choice] = torch.cat([moments[name].flatten() for name in sorted(moments) if name.endswith("exp_avg")])
    for choice in CHOICES[1:]:
        assert float((gradients[choice] - gradients["keep"]).norm() / gradients["keep"].norm()) < 1e-6
        assert sizes[choice] < sizes["keep"] / 4


def test_of_each_layer_only_its_input_is_kept(build, make_model, samples, make_items, grpo):
    sizes = [kept(build(make_model(num_hidden_layers=layers), activations="recompute"), make_items(samples), grpo.loss)
             for layers in (2, 4, 6)]
    rows = micro_batch([[sample] for sample in samples], [sample.mask for sample in samples], torch.device("cpu"))
    most = rows.input_ids.numel() * 32 * 4  # tokens, hidden size, bytes
    assert sizes[1] - sizes[0] == sizes[2] - sizes[1]
    assert 0 < sizes[1] - sizes[0] <= 2 * most


def test_logits_of_many_tokens_are_not_kept(build, samples, make_items, grpo):
    """They are made again, chunk by chunk; see also test_logprobs."""
    whole, chunked = build(), build()
    chunked._scorer._chunk = 8
    tokens = sum(int(sample.mask.sum()) for sample in samples)
    spared = kept(whole, make_items(samples), grpo.loss) - kept(chunked, make_items(samples), grpo.loss)
    assert spared >= tokens * 31 * 4  # one float32 for each token of the vocabulary


class OnADevice(torch.Tensor):
    """Says that it lies on a device other than the CPU, so that moving it shows."""

    @property
    def device(self):
        return torch.device("meta")


def test_what_lies_on_a_device_waits_in_host_memory(make_model):
    model = load_causal_lm(make_model(), "float32")
    hidden = torch.randn(3, 32).as_subclass(OnADevice)
    device, host = in_host_memory(model).pack_hook(hidden)
    assert device == torch.device("meta")
    assert host.untyped_storage().data_ptr() != hidden.untyped_storage().data_ptr()
    assert torch.equal(host.as_subclass(torch.Tensor), hidden.as_subclass(torch.Tensor))


def test_the_models_own_tensors_stay(make_model):
    model = load_causal_lm(make_model(), "float32")
    hooks = in_host_memory(model)
    weight = model.model.layers[0].mlp.up_proj.weight.detach().t().as_subclass(OnADevice)
    assert hooks.pack_hook(weight)[1] is weight
    there = torch.ones(3)
    assert hooks.pack_hook(there) == (there.device, there)
    assert hooks.unpack_hook((there.device, there)) is there

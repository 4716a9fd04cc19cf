"""Policies of environments, from small networks to vision-language-action models."""

from __future__ import annotations

from rlinf_cli.api import Extension, hookimpl


@hookimpl
def register_policies() -> list[Extension]:
    return [
        Extension("mlp", target="rlinf_policies.mlp:MLPPolicy", config="rlinf_policies.config:MLPConfig",
                  summary="fully connected networks for actor and critic, apart"),
        Extension("cnn", target="rlinf_policies.cnn:CNNPolicy", config="rlinf_policies.config:CNNConfig",
                  summary="convolutions over images, which actor and critic share, beside vectors"),
        Extension("vla", target="rlinf_policies.vla:VLAPolicy", config="rlinf_policies.vla_config:VLAConfig",
                  summary="a vision-language model that says actions in tokens, as OpenVLA does"),
        Extension("pi0", target="rlinf_policies.pi0:PI0Policy", config="rlinf_policies.vla_config:PI0Config",
                  summary="a flow guided by a vision-language model, with noise in each step"),
    ]

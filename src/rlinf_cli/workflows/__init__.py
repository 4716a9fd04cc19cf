"""The macro flows, and the plugin that offers them."""

from rlinf_cli.plugins.extension import Extension
from rlinf_cli.plugins.hookspecs import hookimpl


@hookimpl
def register_workflows() -> list[Extension]:
    return [Extension("reasoning", target="rlinf_cli.workflows.reasoning:Reasoning",
                      summary="a language model answers prompts, rewards score the answers"),
            Extension("supervised", target="rlinf_cli.workflows.supervised:Supervised",
                      summary="a language model learns the responses that the data has")]

"""The macro flows, and the plugin that offers them."""

from rlinf_cli.plugins.extension import Extension
from rlinf_cli.plugins.hookspecs import hookimpl


@hookimpl
def register_workflows() -> list[Extension]:
    return [Extension("reasoning", target="rlinf_cli.workflows.reasoning:Reasoning",
                      summary="a language model answers prompts, rewards score the answers"),
            Extension("agentic", target="rlinf_cli.workflows.agentic:Agentic",
                      summary="an agent speaks, calls tools and reads their answers, rewards score the episode"),
            Extension("embodied", target="rlinf_cli.workflows.embodied:Embodied",
                      summary="a policy acts in environments, and learns from what came of it"),
            Extension("cloning", target="rlinf_cli.workflows.cloning:Cloning",
                      summary="a policy learns what was demonstrated in an environment"),
            Extension("supervised", target="rlinf_cli.workflows.supervised:Supervised",
                      summary="a language model learns the responses that the data has")]

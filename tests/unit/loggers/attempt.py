"""One attempt at a run, with the real loggers, in a process of its own: RUN_DIRECTORY STEP NUMBERS LOGGERS KEY=VALUE...

Logs `reward/mean` = attempt + number / 10 for each of the NUMBERS, so that it can be seen which attempt a value is from.
"""

import json
import sys
from functools import partial
from pathlib import Path

from rlinf_cli.config.load import resolve
from rlinf_cli.plugins.lifecycle import ChosenLogger, RunStart
from rlinf_cli.plugins.loader import plugins
from rlinf_loggers.trackers import Trackers


def main(directory, step, numbers, loggers, *keys):
    keys = [key for key in keys if not key.startswith("ignored.")]
    config = resolve([], [f"log.loggers={loggers}", *keys], {}, plugins())
    said = []

    def opened(part, run):
        return part.extension.load()(part.settings, run)

    chosen = [ChosenLogger(part.name, partial(opened, part)) for part in config.parts("log")]
    trackers = Trackers(RunStart("run-1", Path(directory), config.to_dict(), int(step), 9, Path(directory), chosen, said.append))
    for number in json.loads(numbers):
        trackers.log(number, {"reward/mean": int(step) + number / 10, "actor/loss": float("nan")})
    trackers.close("finished")
    heavy = sorted({"torch", "ray", "tensorflow", "transformers"} & set(sys.modules))
    return {"said": said, "heavy": heavy}


result = main(*sys.argv[1:])
print("RESULT", json.dumps(result))

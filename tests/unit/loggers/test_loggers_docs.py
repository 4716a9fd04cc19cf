"""`docs/loggers.md` names every built-in logger, and its example is a logger that works."""

import re
from pathlib import Path

from rlinf_cli.api import RunInfo
from rlinf_cli.plugins.loader import load_plugins

PAGE = (Path(__file__).parents[3] / "docs" / "loggers.md").read_text(encoding="utf-8")


def test_every_logger_is_listed_with_its_extra():
    listed = re.findall(r"^\| `(\w+)` \| `pip install 'rlinf-cli\[(\w+)\]'` \|", PAGE, re.MULTILINE)
    extensions = load_plugins(["loggers"]).extensions("logger")
    assert sorted(listed) == sorted((name, extension.extra) for name, extension in extensions.items())


def test_the_example_logs_each_step_once(run_directory):
    names = {}
    exec(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL).group(1), names)
    for step, logged, numbers in ((0, -1, (1, 2, 3)), (2, 3, (3, 4))):
        logger = names["Lines"](None, RunInfo("run-1", run_directory, {}, step, logged=logged))
        for number in numbers:
            logger.log(number, {"reward/mean": number / 4})
        logger.close("finished")
    assert (run_directory / "lines.txt").read_text() == "1 0.25\n2 0.5\n3 0.75\n4 1.0\n"

import math
from dataclasses import replace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rlinf_cli.api import RunInfo
from rlinf_loggers.config import TensorBoardConfig
from rlinf_loggers.tensorboard import TensorBoard


@pytest.fixture
def run(run_directory):
    return RunInfo("run-1", run_directory, {"seed": 0}, 0)


def curve(directory, name="reward/mean"):
    events = EventAccumulator(str(directory))
    events.Reload()
    return [(event.step, round(event.value, 3)) for event in events.Scalars(name)]


def log(logger, *numbers, value=0.0):
    for number in numbers:
        logger.log(number, {"reward/mean": value + number / 10, "actor/loss": 1.0})
    return logger


def test_every_metric_is_a_curve(run, run_directory):
    logger = log(TensorBoard(TensorBoardConfig(), run), 1, 2)
    logger.log(3, {"reward/mean": math.nan})
    logger.close("finished")
    directory = run_directory / "tensorboard"
    assert logger.tracker_id == str(directory)
    assert curve(directory)[:2] == [(1, 0.1), (2, 0.2)]
    assert math.isnan(curve(directory)[2][1])
    assert curve(directory, "actor/loss") == [(1, 1.0), (2, 1.0)]


def test_a_step_is_on_the_disk_when_it_is_logged(run, run_directory):
    logger = log(TensorBoard(TensorBoardConfig(), run), 1)
    assert curve(run_directory / "tensorboard") == [(1, 0.1)]
    logger.close("finished")


@pytest.mark.parametrize("ended", [True, False], ids=["ended", "killed"])
def test_after_a_resume_steps_beyond_the_checkpoint_are_there_once(run, run_directory, ended):
    first = log(TensorBoard(TensorBoardConfig(), run), 0, 1, 2, 3)
    if ended:
        first.close("finished")
    again = log(TensorBoard(TensorBoardConfig(), replace(run, step=2, tracker_id=first.tracker_id)), 3, 4, value=5.0)
    again.close("finished")
    assert curve(run_directory / "tensorboard") == [(0, 0.0), (1, 0.1), (2, 0.2), (3, 5.3), (4, 5.4)]
    assert len(list((run_directory / "tensorboard").iterdir())) == 2


def test_a_directory_of_ones_own_holds_one_directory_a_run(run, tmp_path):
    boards = tmp_path / "boards"
    for name, value in (("a", 0.0), ("b", 1.0)):
        log(TensorBoard(TensorBoardConfig(str(boards)), replace(run, name=name)), 1, value=value).close("finished")
    assert curve(boards / "a") == [(1, 0.1)]
    assert curve(boards / "b") == [(1, 1.1)]


def test_a_run_that_replaces_another_of_its_name_starts_anew(run, tmp_path):
    config = TensorBoardConfig(str(tmp_path / "boards"))
    log(TensorBoard(config, run), 0, 1, 2, 3).close("finished")
    log(TensorBoard(config, run), 1, value=7.0).close("finished")
    assert curve(tmp_path / "boards" / "run-1") == [(1, 7.1)]

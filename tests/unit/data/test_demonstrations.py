"""Files of demonstrations: what is written is what is read, and what is wrong with a file is said."""

import json

import h5py
import numpy as np
import pytest

from rlinf_cli.data.demonstrations import Demonstration, read_demonstrations, write_demonstrations
from rlinf_cli.errors import UsageError


def demonstration(steps, task="put it there"):
    image = np.arange(steps * 12, dtype=np.uint8).reshape(steps, 2, 2, 3)
    rewards = np.zeros(steps, np.float32)
    rewards[-1] = 1
    return Demonstration({"state": np.arange(steps * 3, dtype=np.float32).reshape(steps, 3), "image": image},
                         np.ones((steps, 2), np.float32), rewards, task, f"please {task}", 7, 3)


def test_what_is_written_is_read(tmp_path):
    shown = [demonstration(steps) for steps in range(1, 13)]
    write_demonstrations(tmp_path / "demos.hdf5", shown, "libero:object", {"task": "object"})
    read = read_demonstrations(tmp_path / "demos.hdf5")
    assert [len(one) for one in read] == list(range(1, 13))
    for one, other in zip(shown, read, strict=True):
        assert (one.task, one.instruction, one.seed, one.state) == (other.task, other.instruction, other.seed, other.state)
        assert all(np.array_equal(one.observations[name], other.observations[name]) for name in ("state", "image"))
        assert np.array_equal(one.actions, other.actions)
        assert np.array_equal(one.rewards, other.rewards)
    assert [path.name for path in tmp_path.iterdir()] == ["demos.hdf5"]


def test_the_layout_is_the_one_that_others_read(tmp_path):
    write_demonstrations(tmp_path / "demos.hdf5", [demonstration(4), demonstration(5)], "libero:object", {"task": "object"})
    with h5py.File(tmp_path / "demos.hdf5") as file:
        data = file["data"]
        assert (data.attrs["total"], json.loads(data.attrs["settings"])) == (9, {"task": "object"})
        assert data["demo_1"].attrs["num_samples"] == 5
        assert sorted(data["demo_1"]) == ["actions", "dones", "obs", "rewards"]
        assert data["demo_1/dones"][()].tolist() == [0, 0, 0, 0, 1]


def test_a_file_of_somebody_else_needs_observations_and_actions_only(tmp_path):
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["data/demo_0/obs/joints"] = np.zeros((3, 2))
        file["data/demo_0/actions"] = np.zeros((3, 1))
        file["data/mask"] = np.zeros(1)
    (one,) = read_demonstrations(tmp_path / "other.hdf5")
    assert (list(one.observations), one.rewards.tolist(), one.state) == (["joints"], [0, 0, 0], -1)


@pytest.mark.parametrize(("names", "told"), [
    (["trajectories/0/actions"], "has no group 'data'"), (["data/demo_0/actions"], "/data/demo_0 has no 'obs'"),
    (["data/demo_0/obs/joints"], "/data/demo_0 has no 'actions'"), (["data/other/obs/joints"], "holds no demonstrations")])
def test_what_a_file_lacks(tmp_path, names, told):
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        for name in names:
            file[name] = np.zeros((3, 2))
    with pytest.raises(UsageError, match=told):
        read_demonstrations(tmp_path / "other.hdf5")


def test_what_is_no_hdf5(tmp_path):
    (tmp_path / "text.hdf5").write_text("no")
    with pytest.raises(UsageError, match=r"text.hdf5 is no HDF5 file that can be read"):
        read_demonstrations(tmp_path / "text.hdf5")

import pytest
import torch

from rlinf_cli.plugins.loader import load_plugins
from rlinf_models.tiny import TinyModel


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def plugins():
    return load_plugins(third_party=False)


@pytest.fixture
def model(tmp_path):
    """A complete model directory that a test may damage."""
    directory = tmp_path / "model"
    directory.mkdir()
    TinyModel("digits", 0).build(directory)
    return directory

"""Fixtures for the tests of plugins; the one module here that needs pytest."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlinf_cli.api import Sample
from rlinf_cli.plugins.testing.material import make_model, make_samples


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a model with 20 k random parameters and a tokenizer of single characters."""
    return make_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def samples() -> list[Sample]:
    """Scored answers to sums, right and wrong, ended and cut off: three to each of four prompts."""
    return make_samples()

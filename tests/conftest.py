"""What every test has in common: profiles that were measured on this machine are none of theirs."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_stored_profiles(tmp_path_factory):
    """An empty directory for profiles, in commands that tests start too; what models were fetched is still found."""
    fetched = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", os.environ.get("HF_HOME") or str(fetched))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield

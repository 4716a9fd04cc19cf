import asyncio

import pytest


@pytest.fixture
def run():
    """Run a coroutine to its end."""
    return asyncio.run

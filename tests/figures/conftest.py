"""Pictures are closed after each test."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    plt.close("all")

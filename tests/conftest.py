# SPDX-License-Identifier: Apache-2.0
"""Order of all tests."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slow ones: at the end, they would keep one worker while the other has none."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)

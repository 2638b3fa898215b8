"""Large test matrices: `make full` runs every cell, `make test` each row and column once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest


def cells(*axes: Sequence[Any]) -> list[Any]:
    """The product of the axes for `parametrize`; all but a diagonal is marked `full`.

    The diagonal goes along the longest axis and around the others, so that every value of
    every axis is in one of its cells.
    """
    longest = max(map(len, axes))
    kept = {tuple(place % len(axis) for axis in axes) for place in range(longest)}
    return [
        pytest.param(
            *(axis[place] for axis, place in zip(axes, places, strict=True)),
            marks=() if places in kept else pytest.mark.full,
        )
        for places in product(*(range(len(axis)) for axis in axes))
    ]


def further(first: Any, *others: Any) -> list[Any]:
    """A row of a matrix whose columns other tests cover: all but the first are marked `full`."""
    return [first, *(pytest.param(other, marks=pytest.mark.full) for other in others)]

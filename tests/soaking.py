"""How long `make soak` searches: SOAK_MINUTES in all, shared by the searches that take part."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

SOAK_MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))


def rounds(share: float) -> Iterator[int]:
    """Round numbers, for as long as this search's share of the time lasts; at least one."""
    ends = time.monotonic() + SOAK_MINUTES * 60 * share
    number = 0
    while number == 0 or time.monotonic() < ends:
        number += 1
        yield number

"""LiteLLM as it is, in tests where every warning is an error."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def litellm_as_it_is() -> Iterator[None]:
    """It warns of what it does itself, and never closes its event loop.

    On the main thread it makes that loop if there is none.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    asyncio.set_event_loop(None)
    loop.close()

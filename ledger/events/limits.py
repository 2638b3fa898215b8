"""Size limits of events and blobs, and the check that free values are JSON."""

from __future__ import annotations

from math import isfinite
from typing import Any

import msgspec

from turnledger.ledger.arguments import INT64
from turnledger.ledger.errors import (
    InvalidEventError,
    InvalidInputError,
    LimitExceededError,
    short_repr,
)
from turnledger.ledger.events.types import EvaluationStarted, Event, PromptEvent, RunStarted

# PostgreSQL orders events by transaction and ordinal, with 12 bits for the ordinal.
BATCH_CEILING = 4096
INT_RANGE = range(-(2**63), 2**64)
# The most that PostgreSQL can index beside a run's id; the same for all stores, so that every run
# can be moved to every store.
INDEXED_BYTES = 2500


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a ledger. Sizes are in bytes, as stored."""

    max_event_bytes: int = 8 * 1024 * 1024
    max_batch_events: int = 1000
    max_batch_bytes: int = 64 * 1024 * 1024
    max_json_depth: int = 64
    max_blob_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            found = getattr(self, name)
            if not isinstance(found, int) or found not in INT64 or found < 1:
                raise InvalidInputError(
                    f"Limits({name}=...): expected a whole number above 0, of at most 64 bits."
                )
        if self.max_batch_events > BATCH_CEILING:
            raise InvalidInputError(
                f"Limits(max_batch_events={self.max_batch_events}): the most is {BATCH_CEILING}."
            )
        if self.max_json_depth > 200:
            raise InvalidInputError(
                f"Limits(max_json_depth={self.max_json_depth}): the most is 200, since deeper "
                "values can't be decoded safely."
            )

    def check(self, what: str, found: int, setting: str) -> None:
        """LimitExceededError if more was found than the setting of this name allows."""
        limit = getattr(self, setting, None)
        if not isinstance(limit, int):
            raise InvalidInputError(f"Unknown limit {short_repr(setting)}.")
        if found > limit:
            raise LimitExceededError(what, limit=limit, found=found, setting=setting)


def check_indexed(event: Event) -> None:
    """Refuse tags and prompt keys that can't be indexed. For appends: old records may have them."""
    if isinstance(event, RunStarted):
        for key, value in event.tags.items():
            _check_bytes(f"RunStarted.tags: {key[:50]!r} and its value", key, value)
    elif isinstance(event, EvaluationStarted | PromptEvent):
        what = f"{type(event).__name__}: prompt_ns and prompt_key"
        _check_bytes(what, event.prompt_ns, event.prompt_key)


def _check_bytes(what: str, *texts: str) -> None:
    found = sum(len(text.encode()) for text in texts)
    if found > INDEXED_BYTES:
        raise InvalidEventError(
            f"{what} have {found} bytes together: expected at most {INDEXED_BYTES}, since they are "
            "indexed. Make them shorter."
        )


def check_json(value: Any, path: str, limits: Limits, depth: int = 0) -> None:
    """Raise if a value does not survive a round trip through JSON; the error names the place.

    Args:
        value: Any value.
        path: The place of the value, for errors.
        limits: The limits of the ledger.
        depth: How deep the value is nested.
    """
    if value is None or isinstance(value, str | bool):
        return
    if isinstance(value, int):
        # Not `in`: for a subclass of int, a range compares one number after the other.
        if not INT_RANGE.start <= value < INT_RANGE.stop:
            raise InvalidEventError(f"{path}: {value} does not fit 64 bits; use text.")
        return
    if isinstance(value, float):
        if not isfinite(value):
            raise InvalidEventError(f"{path}: JSON has no {value}; use null or text.")
        return
    if depth >= limits.max_json_depth:
        limits.check(f"JSON nesting at {path[:200]}", depth + 1, "max_json_depth")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidEventError(f"{path}: object keys must be text, got {key!r}.")
            check_json(item, f"{path}.{key}", limits, depth + 1)
        return
    if isinstance(value, list | tuple):
        for place, item in enumerate(value):
            check_json(item, f"{path}[{place}]", limits, depth + 1)
        return
    raise InvalidEventError(
        f"{path}: {type(value).__name__} is not JSON; convert it to text, numbers, "
        "lists or objects first."
    )

"""Parameters that several operations have, with the bounds that the document shows."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID

from fastapi import Header, Path, Query
from pydantic import AfterValidator, BeforeValidator

from turnledger.ledger.arguments import INT64
from turnledger.projections.run_state.state import built_in

LARGEST = 2**53
# PostgreSQL stores no NUL.
TEXT = r"^[^\x00]*$"


def _is_text_of_a_moment(value: Any) -> Any:
    """Not a number of seconds, which pydantic takes for a time too."""
    if not isinstance(value, str) or "T" not in value.upper():
        raise ValueError("expected a date and time, like 2026-01-31T12:00:00Z")
    return value


def _has_zone(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("expected a time zone: add Z")
    return moment


Moment: TypeAlias = Annotated[
    datetime, BeforeValidator(_is_text_of_a_moment), AfterValidator(_has_zone)
]

RunPath: TypeAlias = Annotated[UUID, Path(description="The run's id.")]
VersionPath: TypeAlias = Annotated[
    int, Path(ge=1, le=LARGEST, description="A version of the run: 1 is its first event.")
]
AtOrLast: TypeAlias = Annotated[
    int | None,
    Query(ge=0, le=LARGEST, description="The version; without it, the last. 0 is the start."),
]
After: TypeAlias = Annotated[
    int, Query(ge=0, le=LARGEST, description="Only versions, or positions, above this one.")
]
Limit: TypeAlias = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]
LimitOrAll: TypeAlias = Annotated[
    int | None,
    Query(ge=1, le=LARGEST, description="How many at most; 1,000 but for NDJSON. Default: 100."),
]
# A JSON Pointer that begins with a view.
_VIEWS = "|".join(view.name for view in built_in())
StatePointer: TypeAlias = Annotated[
    str,
    Query(
        max_length=2000,
        pattern=f"^/({_VIEWS})(/([^~/]|~[01])*)*$",
        description="A JSON Pointer into the state: `/usage/total/calls`.",
    ),
]
CutLarge: TypeAlias = Annotated[
    bool,
    Query(
        alias="cut",
        description=(
            "Shorten what is large: texts above 2,000 characters, lists and objects above 100 "
            "entries, what is deeper than 20 levels, and all together to 100 kB. The answer's "
            "`cut` lists what was shortened; `…/value` gives the rest."
        ),
    ),
]
Full: TypeAlias = Annotated[bool, Query(description="With the events' data, up to 64 kB of each.")]
# An optional header is absent, not null, in the document too: see document.py.
IfMatch: TypeAlias = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description='The version that the run must have: `"12"`.',
        pattern='^"?[0-9]{1,19}"?$',
    ),
]
# Caches send it by themselves; its meaning is defined by HTTP, so the document leaves it out.
IfNoneMatch: TypeAlias = Annotated[
    str | None, Header(alias="If-None-Match", max_length=1000, include_in_schema=False)
]
IfNew: TypeAlias = Annotated[
    Literal["*"] | None,
    Header(alias="If-None-Match", description="`*`: the run must not exist yet."),
]
FromPage: TypeAlias = Annotated[
    Literal["1"],
    Header(alias="X-Turnledger", description="`1`. A form on another site can't send it."),
]
EpochHeader: TypeAlias = Annotated[
    int | None,
    Header(
        alias="Turnledger-Epoch",
        ge=INT64.start,
        le=INT64.stop - 1,
        description="The epoch of the worker's claim.",
    ),
]

"""Events of a run: append them, list them, read one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain, islice
from typing import Annotated, Literal, NamedTuple, TypeAlias
from uuid import UUID

import msgspec
from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.answers import (
    CUT,
    FOREVER,
    FRESH,
    NEVER,
    Json,
    NdjsonResponse,
    accepts_lines,
    etag,
    lines,
    next_page,
)
from turnledger.adapters.http.protocol.api import Answer, Api
from turnledger.adapters.http.protocol.bodies import JSON, NDJSON, media_type
from turnledger.adapters.http.protocol.cut import Cut, cut
from turnledger.adapters.http.protocol.envelopes import BATCH, read_batch, read_entries
from turnledger.adapters.http.protocol.parameters import (
    LARGEST,
    After,
    CutLarge,
    EpochHeader,
    Full,
    IfMatch,
    IfNew,
    LimitOrAll,
    RunPath,
    VersionPath,
)
from turnledger.adapters.http.protocol.problems import ProblemError
from turnledger.adapters.http.protocol.wire import AppendedEvents, EventPlace, RecordLine, whole
from turnledger.adapters.http.served import Served
from turnledger.ledger import ANY, NEW, Appended, Event, EventDecodeError, Ledger, Record
from turnledger.ledger.arguments import INT64
from turnledger.ledger.clock import moment_text
from turnledger.ledger.errors import error_message
from turnledger.ledger.events.types import BaseEvent
from turnledger.ledger.runs.append import Entry
from turnledger.ledger.runs.append_request import Appendable, Expected, Known
from turnledger.ledger.runs.record import as_row
from turnledger.projections.comparison.normalize import event_line

APPEND_PATH = "/v1/runs/{run}/events"
PAGE = 500
# Events on a page of JSON: by default, and at most.
DEFAULT, MOST = 100, 1000
# Characters of an event's one line of text.
LINE = 200
Type: TypeAlias = Annotated[
    str, Query(max_length=100, description="Only events of this type, or pattern: `tool_call.*`.")
]
Until: TypeAlias = Annotated[
    int | None, Query(ge=0, le=LARGEST, description="Only versions up to this one.")
]
Reverse: TypeAlias = Annotated[bool, Query(description="The newest first.")]
ExpectAny: TypeAlias = Annotated[
    Literal["any"] | None, Query(description="`any`: append whatever version the run has.")
]


class EventItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event in a list: one line of text, and the size of its data in bytes.

    `data` is there if it was asked for and has at most 64 kB; else `cut` is the address of the
    whole event.
    """

    version: int
    position: int
    run_id: str
    type: str
    event_id: str
    recorded_at: str
    digest: str
    line: str
    bytes: int
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    cut: str = ""


class ShownEvent(RecordLine, frozen=True):
    """A record; `cut` is there if it was asked for, and has what was shortened in `data`."""

    cut: list[Cut] | msgspec.UnsetType = msgspec.UNSET


class EventPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of a run's events; `next` is the address of the next one, if there are more."""

    events: list[EventItem]
    head: int
    next: str = ""


class Events:
    """The operations on a run's events."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._ledger = served.ledger

    def add_to(self, api: Api) -> None:
        """Add the operations."""
        api.add(
            "POST",
            APPEND_PATH,
            self.append_events,
            role="writer",
            body={JSON: BATCH, NDJSON: BATCH},
            answers={
                201: Answer("Appended", {JSON: AppendedEvents, NDJSON: RecordLine}, ("etag",)),
                200: Answer(
                    "Recorded before, by the same request",
                    {JSON: AppendedEvents, NDJSON: RecordLine},
                    ("etag",),
                ),
            },
            refuses=(
                problems.BLOB_NOT_FOUND,
                problems.RUN_NOT_FOUND,
                problems.VERSION_CONFLICT,
                problems.CONDITION_REQUIRED,
                problems.STALE_EPOCH,
                problems.RUN_CLAIMED,
                problems.ID_CONFLICT,
                problems.STREAM_KIND,
                problems.FORK_POINT,
                problems.REFUSED,
            ),
        )
        api.add(
            "GET",
            "/v1/runs/{run}/events",
            self.list_events,
            role="reader",
            answers={200: Answer("Events", {JSON: EventPage, NDJSON: RecordLine}, ("etag",))},
            refuses=(problems.RUN_NOT_FOUND, problems.EVENT_NOT_FOUND),
        )
        api.add(
            "GET",
            "/v1/runs/{run}/events/{version}",
            self.get_event,
            role="reader",
            answers={200: Answer("The event, whole", {JSON: ShownEvent}, ("etag",))},
            refuses=(problems.RUN_NOT_FOUND, problems.EVENT_NOT_FOUND),
        )

    # --- appending ---

    async def append_events(
        self,
        request: Request,
        run: RunPath,
        if_match: IfMatch = None,
        if_new: IfNew = None,
        epoch: EpochHeader = None,
        expect: ExpectAny = None,
        known: Annotated[
            Literal["refuse", "skip"], Query(description="`skip`: leave out recorded events.")
        ] = "refuse",
    ) -> Response:
        """Append events, all or none.

        The body is a JSON array of 1 to 1,000 items, or NDJSON with one item a line. To send the
        same body again is safe if its events have ids: what is recorded is answered with 200 and
        `duplicate`.
        """
        kind = media_type(request, (JSON, NDJSON))
        body = await request.body()

        def append() -> tuple[Appended, AppendedEvents]:
            conditions = Conditions(if_match, if_new, expect, epoch)
            return append_body(self._ledger, run, body, conditions, kind=kind, known=known)

        done, answer = await self._served.work.append(append)
        self._served.metrics.appended_events += written(answer)
        if accepts_lines(request):
            text = await self._served.work.read(lambda: lines(map(whole, done.records)))
            return Response(text, status_of(answer), headers_of(answer), NDJSON)
        return Json(answer, status_of(answer), headers_of(answer))

    # --- reading ---

    async def list_events(
        self,
        request: Request,
        run: RunPath,
        after: After = 0,
        until: Until = None,
        type: Type = "*",  # noqa: A002 - the name in the address
        reverse: Reverse = False,
        limit: LimitOrAll = None,
        full: Full = False,
    ) -> Response:
        """List a run's events, with those that it shares with its ancestors.

        With `full`, each has its data, but for what is above 64 kB: `cut` says where that is. With
        `Accept: application/x-ndjson` records are whole, with ids, times and digests, and all of
        them are sent unless there is a limit.
        """
        if accepts_lines(request):
            records = await self._served.work.read(
                lambda: self._ledger.read(run, after, until, backwards=reverse)
            )
            pages = _pages(records, type, limit)
            # Before the answer begins: what is wrong so far can still be said.
            first = await self._served.work.read(lambda: next(pages, []))
            return NdjsonResponse(chain([first], pages), FRESH)
        size = min(limit or DEFAULT, MOST)

        def page(ledger: Ledger) -> EventPage:
            rows = min(size + 1, PAGE)
            records = ledger.read(run, after, until, backwards=reverse, page_size=rows)
            head = ledger.head(run)
            found = list(islice((one for one in records if fnmatchcase(one.tag, type)), size + 1))
            shown = found[:size]
            following = ""
            if len(found) > size:
                last = shown[-1].version
                place = {"until": last - 1} if reverse else {"after": last}
                following = next_page(request, **place)
            return EventPage([_item(run, one, full) for one in shown], head, following)

        # In one go, so that a fold beside it is in the way once; a filter may read all of the run.
        if type == "*":
            made = await self._served.work.read(lambda: page(self._ledger))
        else:
            made = await self._served.fold(request, page)
        return Json(made, headers={"etag": etag(made.head), **FRESH})

    async def get_event(
        self, run: RunPath, version: VersionPath, is_cut: CutLarge = False
    ) -> Response:
        """Get one event, whole: its data as it is stored, with ids, time and digest."""
        made = await self._served.work.read(
            lambda: shown(self._ledger.record(run, version), is_cut)
        )
        return Json(made, headers={"etag": f'"{made.digest}"', **FOREVER})


def shown(record: Record, is_cut: bool) -> ShownEvent:
    """A record as an answer; cut if that was asked for."""
    made = ShownEvent(*msgspec.structs.astuple(whole(record)))
    if not is_cut:
        return made
    data, found = cut({"data": msgspec.json.decode(made.data)})
    if found:
        made = msgspec.structs.replace(made, data=data["data"])
    return msgspec.structs.replace(made, cut=found)


def status_of(answer: AppendedEvents) -> int:
    """The status of the answer to an append."""
    return 200 if answer.duplicate else 201


def written(answer: AppendedEvents) -> int:
    """How many events an append wrote."""
    return len([one for one in answer.events if not one.duplicate])


def headers_of(answer: AppendedEvents) -> dict[str, str]:
    """The headers of the answer to an append."""
    return {"etag": etag(answer.version), **NEVER}


class Conditions(NamedTuple):
    """What an append asks of its run: headers, and the parameter `expect`."""

    if_match: str | None
    if_new: str | None
    expect: str | None
    epoch: int | None


def append_body(
    ledger: Ledger,
    run: UUID,
    body: bytes,
    conditions: Conditions,
    *,
    kind: str = JSON,
    known: Known = "refuse",
) -> tuple[Appended, AppendedEvents]:
    """Append the events of a request's body.

    Args:
        ledger: The ledger.
        run: The run.
        body: The body.
        conditions: What the run must be like.
        kind: The media type of the body.
        known: What becomes of events that are recorded already.
    """
    quick = read_entries(body, ledger.codec) if kind == JSON else None
    events, blobs = quick or read_batch(body, kind)
    expected = _expected(conditions)
    done = ledger.append(run, events, expected, conditions.epoch, blobs=blobs, known=known)
    return done, appended(run, done, events)


def _expected(conditions: Conditions) -> int | Expected:
    """What the run's version must be. Of several conditions all must hold."""
    if_match, if_new, expect, _ = conditions
    if if_match is None:
        if if_new is None and expect is None:
            raise ProblemError(
                problems.CONDITION_REQUIRED,
                'Expected If-Match: "N", If-None-Match: * or ?expect=any.',
            )
        return ANY if if_new is None else NEW
    version = min(int(if_match.strip('"')), INT64.stop - 1)
    if if_new is not None and version > 0:
        raise ProblemError(
            problems.VERSION_CONFLICT,
            f"If-Match wants version {version}, and If-None-Match a run that does not exist yet.",
            expected=version,
            found=0,
        )
    return version


def appended(run: UUID, done: Appended, given: Sequence[Appendable]) -> AppendedEvents:
    """The answer to an append of these events."""
    rows = done.rows
    if len(rows) == len(given) and _ENTRY.issuperset(map(type, given)):
        at = moment_text(as_row(rows[0]).recorded_at)  # of all: they are one commit
        places = [  # entries are recorded as they are
            EventPlace(event_id, version, position, at, digest.hex(), False)
            for position, _, version, _, event_id, _, digest, _ in rows
        ]
        return AppendedEvents(run, done.version, done.digest, False, places)
    new = {one.version for one in done.new}
    places = [
        _place(record, one if isinstance(one, BaseEvent) else one.event, record.version not in new)
        for record, one in zip(done.records, given, strict=True)
    ]
    return AppendedEvents(run, done.version, done.digest, done.duplicate, places)


def _place(record: Record, given: Event, duplicate: bool) -> EventPlace:
    position, _, version, _, event_id, recorded_at, digest, data = record.row
    return EventPlace(
        event_id,
        version,
        position,
        _moment_text(recorded_at),
        digest.hex(),
        duplicate,
        msgspec.UNSET if record.event == given else msgspec.Raw(data.encode()),
    )


# The events of a commit share their time.
_moment_text = lru_cache(maxsize=256)(moment_text)
_ENTRY = frozenset((Entry,))


def _pages(
    records: Iterator[Record], pattern: str, limit: int | None
) -> Iterator[list[RecordLine]]:
    chosen = islice((one for one in records if fnmatchcase(one.tag, pattern)), limit)
    while page := [whole(one) for one in islice(chosen, PAGE)]:
        yield page


def _item(run: UUID, record: Record, full: bool) -> EventItem:
    row = record.row
    data = row.data.encode()
    is_cut = len(data) > CUT
    return EventItem(
        row.version,
        row.position,
        row.run_id,
        row.tag,
        row.event_id,
        moment_text(row.recorded_at),
        record.digest,
        _line(record),
        len(data),
        msgspec.Raw(data) if full and not is_cut else msgspec.UNSET,
        f"/v1/runs/{run}/events/{row.version}" if full and is_cut else "",
    )


def _line(record: Record) -> str:
    try:
        return event_line(record.event, LINE)
    except EventDecodeError as error:
        return error_message(error)[:LINE]

"""LedgerClient: a Ledger over HTTP, for programs that have a URL and a token and nothing else.

It is a Ledger whose store is a server's: reading goes through the same code, which checks what it
checks beside a store, and appends and claims are sent whole, for the server's ledger to decide.
"""

from __future__ import annotations

import os
import secrets
from datetime import timedelta
from typing import Any, BinaryIO, Final

import msgspec

from turnledger.adapters.http.client.connection import Connection
from turnledger.adapters.http.client.remote_store import RemoteStore
from turnledger.adapters.http.protocol.wire import (
    LONGEST_WAIT,
    AppendedEvents,
    ClaimAnswer,
    EventPlace,
    Imported,
    decode_answer,
    micros_of,
)
from turnledger.ledger import (
    Appended,
    AsyncLedger,
    Claim,
    Clock,
    Codec,
    Ledger,
    Limits,
    Redactor,
    Report,
    RunClaimed,
    SystemClock,
)
from turnledger.ledger.arguments import check_arguments, check_methods
from turnledger.ledger.async_ledger import THREADS
from turnledger.ledger.ledger import DEFAULT_TTL, OnDamage
from turnledger.ledger.redaction import STANDARD
from turnledger.ledger.redaction.events import redacted_parts
from turnledger.ledger.runs.append import ANY_VERSION, AppendRequest, Entry, Outcome
from turnledger.ledger.runs.append_request import RunId, canonical_id, warn_of_redacted_state
from turnledger.ledger.runs.claims import key_holder
from turnledger.ledger.runs.record import NewColumns, Row
from turnledger.ledger.runs.transaction import Lease

TOKEN_VARIABLE: Final = "TURNLEDGER_TOKEN"  # noqa: S105 - a name
JSON: Final = {"content-type": "application/json"}
# Seconds to wait for what may read a whole ledger.
LONG: Final = 3600.0


@check_methods()
class LedgerClient(Ledger):
    """A ledger behind a server, with the surface and the errors of a Ledger.

        with LedgerClient("https://ledger.example:8321", token="tl_...") as ledger:
            ledger.append(run, event, expected_version=NEW)

    Nothing is asked of the server before the first call. What gets no answer is sent again with
    the same ids. A claim is held by a key of this object: it ends when its time is up or with its
    release, and not when this process ends.

    Args:
        url: The server: `https://host:8321`.
        token: The access token; that of TURNLEDGER_TOKEN by default.
        wait: Seconds to try a request again that gets no answer, before StoreUnavailableError. A
            server that was never reached is not waited for.
        timeout: Seconds to wait for one answer.
        limits: How large events may be here; the server has limits of its own.
        clock: The source of ids, the system's by default. Times are the server's.
        redactor: Marks secrets before they are sent; the server has a redactor of its own.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        wait: float = 30.0,
        timeout: float = 60.0,
        limits: Limits | None = None,
        clock: Clock | None = None,
        redactor: Redactor | None = STANDARD,
    ) -> None:
        given = os.environ.get(TOKEN_VARIABLE, "") if token is None else token
        self._remote = RemoteStore(Connection(url, given, wait=wait, timeout=timeout))
        super().__init__(
            self._remote, codec=Codec(limits, redactor=redactor), clock=clock or SystemClock()
        )
        self.url = self._remote.connection.url
        self._key = secrets.token_hex(32)
        # Keys that the caller gave, by the holder of the claim.
        self._keys: dict[str, str] = {}

    # --- writing ---

    def _append(self, request: AppendRequest) -> Appended:
        answer = self._remote.send(
            "POST",
            f"/v1/runs/{request.run_id}/events",
            params={
                "expect": "any" if request.expected == ANY_VERSION else None,
                "known": "skip" if request.skip else None,
            },
            headers=_conditions(request),
            content=_body(request),
        )
        self._remote.grown.wake_all()
        done = decode_answer(answer, AppendedEvents)
        is_plain = not (done.duplicate or request.skip) and len(done.events) == len(request.entries)
        if is_plain and not [one for one in done.events if one.data is not msgspec.UNSET]:
            return _AppendedAsSent(request, done, self._codec)
        return _appended(request, done, self._codec)

    def import_runs(self, source: BinaryIO) -> Imported:
        """Import the runs of an export file, as `import_runs` does beside a store.

        The token needs the role admin.
        """
        answer = self._remote.send(
            "POST",
            "/v1/import",
            content=source.read(),
            headers={"content-type": "application/x-ndjson"},
            timeout=LONG,
        )
        return decode_answer(answer, Imported)

    # --- claims ---

    def _claim(
        self,
        run: str,
        worker: str | None,
        ttl: timedelta,
        key: str | None,
        first: AppendRequest | None = None,
    ) -> Claim:
        name = self.redact_text(worker or self.worker)
        self._codec.encode(RunClaimed(worker=name, epoch=1))  # refuses what no store can hold
        used = self._key if key is None else key
        holder = key_holder(run, name, used)
        body: dict[str, Any] = {"worker": name, "ttl": _seconds(ttl)}
        if first is not None:
            (entry,) = first.entries
            body["started"] = _envelope(entry)
            body["blobs"] = [{"content": content} for content in first.blobs.values()]
        answer = self._send_claim("claim", run, body, used)
        granted = decode_answer(answer, ClaimAnswer)
        if key is not None:
            self._keys[holder] = key
        lease = Lease(run, granted.worker, granted.epoch, holder, 0)
        return Claim(self, lease, granted.version, int(_seconds(ttl) * 1e6))

    def _claim_next(
        self,
        agents: tuple[str, ...],
        worker: str | None,
        ttl: timedelta,
        key: str | None,
        exclude: tuple[str, ...],
        on_damage: OnDamage | None,
        wait: float,
    ) -> Claim | None:
        name = self.redact_text(worker or self.worker)
        # One key a claim: the request may be sent again, and another one gets another run.
        used = secrets.token_hex(32) if key is None else key
        key_holder("", name, used)  # refuses an invalid one
        body = {
            "agents": agents,
            "worker": name,
            "ttl": _seconds(ttl),
            "wait": max(min(wait, LONGEST_WAIT), 0.0),
            "exclude": exclude,
        }
        answer = self._remote.send(
            "POST",
            "/v1/claims",
            headers={**JSON, "turnledger-claim-key": used},
            content=msgspec.json.encode(body),
        )
        if not answer:
            return None
        granted = decode_answer(answer, ClaimAnswer)
        run = str(granted.run_id)
        lease = Lease(run, granted.worker, granted.epoch, key_holder(run, granted.worker, used), 0)
        self._keys[lease.holder] = used
        return Claim(self, lease, granted.version, int(_seconds(ttl) * 1e6))

    def resume_claim(
        self,
        run_id: RunId,
        *,
        worker: str,
        epoch: int,
        key: str,
        ttl: timedelta = DEFAULT_TTL,
    ) -> Claim:
        """A claim that was taken with a key, as `Ledger.resume_claim`.

        Args:
            run_id: The run.
            worker: The worker's name, as it was claimed with.
            epoch: The claim's epoch.
            key: The key that it was claimed with.
            ttl: By how much a heartbeat prolongs it.
        """
        claim = super().resume_claim(run_id, worker=worker, epoch=epoch, key=key, ttl=ttl)
        self._keys[claim.holder] = key
        return claim

    def worker_of(self, run_id: RunId) -> str | None:
        """The worker that holds a run's claim now; None if no live worker does."""
        found = self._remote.holder_of(canonical_id(run_id))
        return found.worker if found.is_live else None

    def heartbeat(self, claim: Claim) -> None:
        """Prolong a claim by its ttl; StaleEpochError if another worker has the run."""
        body = {"worker": claim.worker, "epoch": claim.epoch, "ttl": claim.ttl / 1e6}
        self._send_claim("heartbeat", claim.run_id, body, self._key_of(claim))

    def release(self, claim: Claim) -> None:
        """Release a claim; does nothing if it is lost already."""
        body = {"worker": claim.worker, "epoch": claim.epoch}
        self._send_claim("release", claim.run_id, body, self._key_of(claim))
        self._keys.pop(claim.holder, None)

    def _key_of(self, claim: Claim) -> str:
        return self._keys.get(claim.holder, self._key)

    def _send_claim(self, what: str, run: str, body: dict[str, Any], key: str) -> bytes:
        return self._remote.send(
            "POST",
            f"/v1/runs/{run}/{what}",
            headers={**JSON, "turnledger-claim-key": key},
            content=msgspec.json.encode(body),
        )

    # --- maintenance ---

    def verify(self, run_id: RunId) -> Report:
        """Have the server recompute the digests of a run, and of its ancestors up to it."""
        path = f"/v1/runs/{canonical_id(run_id)}/verify"
        return decode_answer(self._remote.send("GET", path, timeout=LONG), Report)


class AsyncLedgerClient(AsyncLedger):
    """A LedgerClient for asyncio: its methods, awaited, over a pool of threads and of sockets.

        async with AsyncLedgerClient("https://ledger.example:8321") as ledger:
            await ledger.append(run, event, expected_version=NEW)

    Args:
        url: The server.
        token: The access token; that of TURNLEDGER_TOKEN by default.
        threads: How many calls may run at once.
        settings: As for `LedgerClient`.
    """

    @check_arguments
    def __init__(
        self, url: str, token: str | None = None, *, threads: int = THREADS, **settings: Any
    ) -> None:
        super().__init__(LedgerClient(url, token, **settings), threads=threads)


def _seconds(ttl: timedelta) -> float:
    return max(ttl.total_seconds(), 0.0)


def _conditions(request: AppendRequest) -> dict[str, str]:
    headers = dict(JSON)
    if request.expected == 0:
        headers["if-none-match"] = "*"
    elif request.expected != ANY_VERSION:
        headers["if-match"] = f'"{request.expected}"'
    if request.epoch is not None:
        headers["turnledger-epoch"] = str(request.epoch)
    return headers


class _Envelope(msgspec.Struct, frozen=True, gc=False):
    """An event of a body; its data is JSON already."""

    type: str
    data: msgspec.Raw
    event_id: str


def _body(request: AppendRequest) -> bytes:
    items: list[Any] = [
        {"type": "blob", "data": {"content": content}} for content in request.blobs.values()
    ]
    items += map(_envelope, request.entries)
    return msgspec.json.encode(items)


def _envelope(entry: Entry) -> _Envelope:
    return _Envelope(entry.tag, msgspec.Raw(entry.data), entry.event_id)


class _AppendedAsSent(Appended):
    """New events, recorded as they were sent: the rows are made when they are looked at."""

    __slots__ = ("_done", "_rows", "_run")

    def __init__(self, request: AppendRequest, done: AppendedEvents, codec: Codec) -> None:
        self._run, self._entries, self._codec = request.run_id, request.entries, codec
        self._done = done
        self._rows: Outcome | None = None

    @property
    def _outcome(self) -> Outcome:  # type: ignore[override]
        if self._rows is None:
            places = self._done.events
            pairs = zip(places, self._entries, strict=True)
            rows = [_columns(self._run, place, entry) for place, entry in pairs]
            self._rows = Outcome(rows, [one.position for one in places], False)
        return self._rows


def _appended(request: AppendRequest, done: AppendedEvents, codec: Codec) -> Appended:
    run, places = request.run_id, done.events
    entries = [
        entry if place.data is msgspec.UNSET else _recorded(run, entry, place, codec)
        for entry, place in zip(request.entries, places, strict=True)
    ]
    pairs = list(zip(places, entries, strict=True))
    if request.skip:  # what was recorded before may stand in any order
        pairs.sort(key=lambda pair: pair[0].version)
    new = [pair for pair in pairs if done.duplicate or not pair[0].duplicate]
    known = [] if len(new) == len(pairs) else [pair for pair in pairs if pair[0].duplicate]
    outcome = Outcome(
        [_columns(run, *pair) for pair in new],
        [place.position for place, _ in new],
        done.duplicate,
        tuple(Row(pair[0].position, *_columns(run, *pair)) for pair in known),
    )
    return Appended(outcome, entries, codec)


def _recorded(run: str, entry: Entry, place: EventPlace, codec: Codec) -> Entry:
    """The event as the server has recorded it: its redactor may know further secrets.

    State that the server has redacted is recorded by now: it can't be refused, and is logged.
    """
    assert isinstance(place.data, msgspec.Raw)
    data = bytes(place.data)
    event = codec.decode(entry.tag, data)
    parts = entry.redacted + redacted_parts(entry.event, event)
    made = Entry(entry.event_id, entry.tag, data, event, parts, entry.exact)
    if made.redacted_state != entry.redacted_state:
        warn_of_redacted_state(run, [made])
    return made


def _columns(run: str, place: EventPlace, entry: Entry) -> NewColumns:
    return (
        run,
        place.version,
        entry.tag,
        entry.event_id,
        micros_of(place.recorded_at),
        bytes.fromhex(place.digest),
        entry.data.decode(),
    )

"""A store behind a server: what a Ledger reads, as HTTP requests.

It writes nothing: `LedgerClient` sends appends and claims whole, since the server's ledger decides
about them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

from turnledger.adapters.http.client.connection import Connection
from turnledger.adapters.http.client.errors import NotServedError
from turnledger.adapters.http.protocol.wire import (
    Catalogue,
    Holder,
    RecordLine,
    RunLine,
    columns_of,
    decode_answer,
    decode_lines,
    row_of,
)
from turnledger.ledger import BlobNotFoundError, InvalidInputError, RunNotFoundError
from turnledger.ledger.clock import moment_text, to_micros
from turnledger.ledger.runs.index import RunRow, place_of
from turnledger.ledger.runs.record import Columns, RawRow, as_row
from turnledger.ledger.runs.transaction import Lease, TokenRow, Transaction, Watermark
from turnledger.ledger.stores.base import RunQuery, Store
from turnledger.ledger.stores.derived_data import DerivedReader
from turnledger.ledger.stores.wakeup import Wakeup

T = TypeVar("T")
LINES = {"accept": "application/x-ndjson"}
# The largest version and position that the API takes, and the most runs on one of its pages.
LARGEST = 2**53
MOST_RUNS = 1000
_BLOB = re.compile("sha256:[0-9a-f]{64}")


class RemoteStore(Store):
    """The store of a server, as far as it can be read through it.

    Args:
        connection: The connection to the server; closed with the store.
    """

    is_served = True

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self.derived = _NoDerivedData(connection.url)
        # Wakes followers of this client when it appends.
        self.grown = Wakeup()

    def send(self, method: str, path: str, **more: Any) -> bytes:
        """The body of the answer to a request, as for `Connection.request`."""
        self._check_open()
        return self.connection.request(method, path, **more).content

    def close(self) -> None:
        """Close the connection."""
        if not self._closed:
            self._closed = "This ledger was closed. Open it again."
            self.connection.close()

    # --- reading ---

    def rows(
        self, run_id: str, after: int, until: int | None, *, backwards: bool, limit: int
    ) -> list[Columns]:
        """A page of a run's rows; `after` is not below the version that the run starts from."""
        params = {
            "after": min(max(after, 0), LARGEST),
            "until": until if until is not None and until < LARGEST else None,
            "reverse": "true" if backwards else None,
            "limit": limit,
        }
        try:
            rows = self._rows(f"/v1/runs/{run_id}/events", params)
        except RunNotFoundError:
            return []
        return [row for row in rows if as_row(row).run_id == run_id]

    def rows_after(self, position: int, limit: int, until: int | None = None) -> list[Columns]:
        return self._tail(position, limit, until, confirmed=None)

    def confirmed_rows_after(
        self, position: int, limit: int, until: int | None = None
    ) -> list[Columns]:
        return self._tail(position, limit, until, confirmed="true")

    def rows_before(self, position: int, limit: int) -> list[Columns]:
        params = {"before": min(max(position, 0), LARGEST), "limit": limit}
        return self._rows("/v1/events", params)

    def _tail(
        self, position: int, limit: int, until: int | None, *, confirmed: str | None
    ) -> list[Columns]:
        if position > LARGEST:
            return []
        params = {"after": max(position, 0), "limit": limit, "confirmed": confirmed}
        rows = self._rows("/v1/events", params)
        return [row for row in rows if until is None or as_row(row).position <= until]

    def _rows(self, path: str, params: dict[str, Any]) -> list[Columns]:
        found = decode_lines(self.send("GET", path, params=params, headers=LINES), RecordLine)
        return [columns_of(line) for line in found]

    def wait_for_more(self, position: int, seconds: float) -> None:
        self.grown.wait(seconds)

    def run(self, run_id: str) -> RunRow | None:
        try:
            found = self.send("GET", f"/v1/runs/{run_id}", headers=LINES)
        except RunNotFoundError:
            return None
        return row_of(decode_answer(found, RunLine))

    def list_runs(self, query: RunQuery) -> list[RunRow]:
        if query.prompts is not None:
            return self._list(query, "prompt" if query.prompts else "run")
        # Both kinds by one order, which each of the two lists has.
        found = [*self._list(query, "run"), *self._list(query, "prompt")]
        return sorted(found, key=place_of, reverse=True)[: query.limit]

    def _list(self, query: RunQuery, kind: str) -> list[RunRow]:
        params = {
            "status": query.status,
            "prompt": query.prompt,
            "tag": [_tag(*one) for one in query.tags],
            "since": query.since if query.since is None else moment_text(query.since),
            "until": query.until if query.until is None else moment_text(query.until),
            "before": query.before[1] if query.before is not None else None,
            "id": query.ends[0] if query.ends is not None else None,
            "parent": query.parent,
            "kind": kind,
        }
        rows: list[RunRow] = []
        while (left := min(query.limit - len(rows), MOST_RUNS)) > 0:
            page = self.send("GET", "/v1/runs", params={**params, "limit": left}, headers=LINES)
            found = [row_of(line) for line in decode_lines(page, RunLine)]
            rows += found
            if len(found) < left:
                break
            params["before"] = found[-1].run_id
        return rows

    def blob(self, name: str) -> bytes | None:
        self._check_open()
        if not _BLOB.fullmatch(name):
            return None
        try:
            return self.send("GET", f"/v1/blobs/{name}")
        except BlobNotFoundError:
            return None

    def lease(self, run_id: str) -> Lease | None:
        """The last lease of a run; its holder is the server's secret."""
        found = self.holder_of(run_id)
        if found.expires_at is None:
            return None
        return Lease(run_id, found.worker, found.epoch, "", to_micros(found.expires_at))

    def holder_of(self, run_id: str) -> Holder:
        """The worker that has a run."""
        return decode_answer(self.send("GET", f"/v1/runs/{run_id}/claim"), Holder)

    def written_catalogue(self) -> int | None:
        found = decode_answer(self.send("GET", "/v1/catalogue"), Catalogue)
        return found.catalogue

    def diagnostics(self) -> dict[str, str]:
        return {"server": self.connection.url}

    # --- what only the server's process can do ---

    def write(self, work: Callable[[Transaction], T]) -> T:
        self._refuse("A write other than an append (access tokens, derived data, repairs)")

    def _refuse(self, what: str) -> NoReturn:
        self._check_open()
        raise NotServedError(what, self.connection.url)

    def _begin_group(self) -> None:
        self._refuse("A transaction")

    def _end_group(self) -> None:
        pass

    def _transaction(self, *, careful: bool) -> Transaction:
        self._refuse("A transaction")

    def last_position(self) -> int | None:
        self._refuse("The position of the last event")

    def blob_names(self) -> Iterator[str]:
        self._refuse("A list of all blobs")

    def token(self, token_id: str) -> TokenRow | None:
        self._refuse("A look at access tokens")

    def tokens(self) -> list[TokenRow]:
        self._refuse("A list of access tokens")

    def holder(self) -> str:
        self._refuse("A claim without a claim key")

    def raw_run_ids(self) -> Iterator[Any]:
        self._refuse("A check of the whole ledger")

    def raw_rows(self, run_id: Any, first: int | None = None) -> Iterator[RawRow]:
        self._refuse("A check of stored rows")

    def raw_tags(self) -> Iterator[tuple[Any, Any, Any]]:
        self._refuse("A check of the whole ledger")


class _NoDerivedData(DerivedReader):
    """Derived data is beside the events in the store, and not served."""

    def __init__(self, url: str) -> None:
        self._url = url

    def _refuse(self) -> NoReturn:
        raise NotServedError("A table of derived data", self._url)

    def watermarks(self) -> dict[str, Watermark]:
        self._refuse()

    def watermark(self, name: str) -> Watermark | None:
        self._refuse()

    def get(self, name: str, keys: Sequence[str]) -> dict[str, str]:
        self._refuse()

    def page(self, name: str, after: str, limit: int) -> list[tuple[str, str]]:
        self._refuse()

    def last(self, name: str, after: str, until: str, limit: int) -> list[tuple[str, str]]:
        self._refuse()


def _tag(key: str, value: str | None) -> str:
    if "=" in key:
        raise InvalidInputError(f"Invalid key of a tag {key!r}: over HTTP it can't have a =.")
    return key if value is None else f"{key}={value}"

"""Claims: one worker at a time for a run, and a fence against the one before.

The claim itself is an event with a growing epoch; an append with an older epoch is refused. How
long a claim lasts is a lease: a row of its own, not an event and not covered by digests. A lease
is void when its holder is known to be dead, or when its time is up.

A claim that is taken for a worker on another machine has a key, a secret of that worker. Its
holder is made from the key, so the process that wrote the lease may die, and any other can
prolong and release it.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple, Protocol

from turnledger.ledger.arguments import check_methods
from turnledger.ledger.clock import Clock
from turnledger.ledger.errors import (
    DAMAGE,
    IntegrityFailureError,
    InvalidClaimKeyError,
    RunClaimedError,
    RunNotFoundError,
    StaleEpochError,
)
from turnledger.ledger.events.types import Event, RunClaimed, RunParked, RunStarted
from turnledger.ledger.runs.append import ANY_VERSION, AppendRequest, Entry, append
from turnledger.ledger.runs.codec import Codec
from turnledger.ledger.runs.index import Loss, RunRow, is_work
from turnledger.ledger.runs.transaction import KEY_HOLDER, Lease, Transaction, WorkQuery

# How many characters a claim key may have.
SHORTEST_KEY: Final = 16
LONGEST_KEY: Final = 200


class _Claims(Protocol):
    def heartbeat(self, claim: Claim) -> None: ...

    def release(self, claim: Claim) -> None: ...


@check_methods()
class Claim:
    """A worker's right to write to a run; a context manager that releases it."""

    __slots__ = ("_ledger", "epoch", "holder", "run_id", "ttl", "version", "worker")

    def __init__(self, ledger: _Claims, lease: Lease, version: int, ttl: int) -> None:
        self._ledger = ledger
        self.run_id = lease.run_id
        self.worker = lease.worker
        self.epoch = lease.epoch
        self.holder = lease.holder
        self.version = version
        self.ttl = ttl

    def heartbeat(self) -> None:
        """Prolong the lease by its ttl; StaleEpochError if another worker has the run."""
        self._ledger.heartbeat(self)

    def release(self) -> None:
        """Give the claim back; no error if it is lost already."""
        self._ledger.release(self)

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<Claim of {self.run_id} by {self.worker!r}, epoch {self.epoch}>"


def key_holder(run_id: str, worker: str, key: str) -> str:
    """The holder of a lease that a worker takes with a claim key; the key can't be found from it.

    Raises:
        InvalidClaimKeyError: The key is too short, too long, or not text.
    """
    try:
        encoded = key.encode()
    except UnicodeEncodeError:
        raise InvalidClaimKeyError("it has characters that are not Unicode") from None
    if not SHORTEST_KEY <= len(key) <= LONGEST_KEY:
        raise InvalidClaimKeyError(
            f"got {len(key)} characters, expected {SHORTEST_KEY} to {LONGEST_KEY}"
        )
    if "\0" in key:
        raise InvalidClaimKeyError("it has a NUL")
    # Run and worker are hashed with it: a key that is used for several runs gives no equal rows.
    # A key has no NUL, so it can't be taken for a part of the name before it.
    named = f"{run_id}\0{worker}\0".encode(errors="surrogatepass")
    return KEY_HOLDER + sha256(named + encoded).hexdigest()


def claim(
    tx: Transaction, run_id: str, worker: str, holder: str, ttl: int, clock: Clock, codec: Codec
) -> tuple[Lease, int]:
    """Claim a run, or prolong the claim of the same worker; the lease and the run's version.

    Args:
        tx: The transaction.
        run_id: The run.
        worker: The worker's name.
        holder: The name of the worker's liveness lock, or the holder of its claim key.
        ttl: How long the lease lasts, in microseconds.
        clock: Gives the event's id and time.
        codec: Encodes the event.
    """
    row = tx.run(run_id)
    if row is None:
        raise RunNotFoundError(run_id)
    lease = tx.leases.get(run_id)
    if lease is not None and lease.epoch == row.epoch and tx.leases.is_live(lease):
        if (lease.worker, lease.holder) != (worker, holder):
            raise RunClaimedError(run_id, worker=lease.worker, epoch=lease.epoch)
        prolonged = lease._replace(expires_at=tx.leases.now() + ttl)
        tx.leases.put(prolonged)
        return prolonged, row.version
    if run_id not in tx.staged:
        _check_head(tx, row)
    epoch = row.epoch + 1
    event = RunClaimed(worker=worker, epoch=epoch)
    entry = Entry(clock.new_id(), *codec.encode_checked(event))
    outcome = append(tx, AppendRequest(run_id, [entry], ANY_VERSION, row.epoch, {}), clock)
    taken = Lease(run_id, worker, epoch, holder, tx.leases.now() + ttl)
    tx.leases.put(taken)
    return taken, outcome.version


class Picking(NamedTuple):
    """What a worker asks for that takes the next run, whichever it is.

    `holder_of` gives the holder of its lease of a run. With `again`, a run that this worker and
    holder have already is given once more: the answer to an earlier call may have been lost.
    """

    agents: tuple[str, ...]
    worker: str
    holder_of: Callable[[str], str]
    ttl: int
    exclude: tuple[str, ...]
    again: bool
    on_damage: Callable[[str, Exception], None]


def claim_next(
    tx: Transaction, asked: Picking, clock: Clock, codec: Codec
) -> tuple[Lease, int] | None:
    """Claim the oldest run that is left to be worked on; None if there is none.

    Such a run was requested and never claimed, or it is running and its lease counts no more. A
    run without a request, such as one that a program appends to by hand, is passed over, and so
    is a damaged one.

    Args:
        tx: The transaction.
        asked: What is asked for.
        clock: Gives the event's id and time.
        codec: Encodes the event, and decodes the request.
    """
    if asked.again and (held := _held_already(tx, asked)):
        return claim(tx, held.run_id, held.worker, held.holder, asked.ttl, clock, codec)
    now, is_alive = tx.leases.now(), tx.leases.holder_alive
    ended = tuple(holder for holder in tx.leases.holders(now) if not is_alive(holder))
    query = WorkQuery(asked.agents, asked.exclude, now, ended)
    while (place := tx.find_work(query)) is not None:
        query, (_, run) = query._replace(after=place), place
        try:
            row = tx.run(run)
            if row is not None and is_work(row, asked.agents) and _has_request(tx, row, codec):
                holder = asked.holder_of(run)
                return claim(tx, run, asked.worker, holder, asked.ttl, clock, codec)
        except RunClaimedError:
            continue  # another worker was quicker
        except DAMAGE as error:
            asked.on_damage(f"{run!s:.80}", error)
    return None


def _held_already(tx: Transaction, asked: Picking) -> Lease | None:
    for lease in tx.leases.of_worker(asked.worker):
        row = tx.run(lease.run_id)
        if row is None or row.epoch != lease.epoch or lease.holder != asked.holder_of(row.run_id):
            continue
        if is_work(row, asked.agents) and tx.leases.is_live(lease):
            return lease
    return None


def _has_request(tx: Transaction, row: RunRow, codec: Codec) -> bool:
    """Whether a run begins with a request; a fork that was run has its parent's."""
    first = tx.row_at(row.run_id, row.parent_version + 1)
    if first is None:
        raise IntegrityFailureError(
            f"Run {row.run_id} is damaged: its first record is missing. Run `turnledger verify "
            f"{row.run_id}`."
        )
    if first.tag != RunStarted.tag:
        return False
    started = codec.decode(first.tag, first.data)
    assert isinstance(started, RunStarted)
    return row.kind == "fork" or started.request_id is not None


def _check_head(tx: Transaction, row: RunRow) -> None:
    """Refuse to write after a record that is missing: the gap would stay."""
    last = tx.row_at(row.run_id, row.version)
    if last is None or last.digest != row.digest:
        found = "is missing" if last is None else "has another digest"
        raise IntegrityFailureError(
            f"Run {row.run_id} can't be claimed: the index has version {row.version}, and that "
            f"record {found}. Run `turnledger verify {row.run_id}`. To give up records that are "
            f"lost: `turnledger rebuild-index --accept-loss {row.run_id}`."
        )


def park_after_loss(
    tx: Transaction, loss: Loss, ids: tuple[str, str], clock: Clock, codec: Codec
) -> None:
    """Append RunParked to a run whose lost records are given up, so that nothing recovers it.

    Args:
        tx: The transaction that lowered the run's row in the index.
        loss: What is missing.
        ids: Ids for the events.
        clock: Gives the events' time.
        codec: Encodes the events.
    """
    lease = tx.leases.get(loss.run_id)
    if lease is not None and tx.leases.is_live(lease):
        raise RunClaimedError(loss.run_id, worker=lease.worker, epoch=lease.epoch)
    events: list[Event] = [
        RunParked(
            reason=f"records {loss.last + 1} to {loss.version} are missing, by the run index; "
            "their loss was accepted"
        )
    ]
    if loss.epoch > loss.last_epoch:
        # The record of a claim is lost: its worker must stay fenced off, so its epoch is used up.
        events.insert(0, RunClaimed(worker="rebuild-index", epoch=loss.epoch + 1))
    entries = [
        Entry(event_id, *codec.encode_checked(event))
        for event_id, event in zip(ids, events, strict=False)
    ]
    append(tx, AppendRequest(loss.run_id, entries, ANY_VERSION, None, {}), clock)


def prolong(tx: Transaction, claim: Claim) -> None:
    """Prolong the lease by its ttl; StaleEpochError if it is not this claim's any more.

    RunClaimedError if the claim's epoch is right and its key or worker is not.
    """
    lease = tx.leases.get(claim.run_id)
    row = tx.run(claim.run_id)
    found = row.epoch if row is not None else 0
    if found != claim.epoch or lease is None:
        raise StaleEpochError(
            claim.run_id, epoch=claim.epoch, found=found, released=found == claim.epoch
        )
    if lease.holder != claim.holder:
        raise RunClaimedError(claim.run_id, worker=lease.worker, epoch=lease.epoch)
    tx.leases.put(lease._replace(expires_at=tx.leases.now() + claim.ttl))


def release(tx: Transaction, claim: Claim) -> None:
    """Drop the lease if it is still this claim's."""
    lease = tx.leases.get(claim.run_id)
    if lease is not None and (lease.epoch, lease.holder) == (claim.epoch, claim.holder):
        tx.leases.drop(claim.run_id)

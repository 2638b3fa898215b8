"""Seals: a signed statement of the last digest of every run, to be stored out of a forger's reach.

Verification alone finds damage, but not a forger who rewrites a run and recomputes its digests, or
removes a run: the result is consistent. A seal from before shows both. Since each digest covers
all records before it, a head (run, version, digest) covers its run up to there. A ledger that
fits a seal may have grown and has lost and changed nothing. Memory grows with the number of runs,
not of events.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from operator import attrgetter
from typing import Final, Protocol

import msgspec

from turnledger.ledger.clock import moment_text
from turnledger.ledger.errors import IntegrityFailureError
from turnledger.ledger.events.chain import DIGEST_TEXT, UUID_TEXT, with_length
from turnledger.ledger.integrity.run_check import Problem
from turnledger.ledger.integrity.signing import Signer, is_signed_by
from turnledger.ledger.integrity.verify import Report, every_run
from turnledger.ledger.runs.index import RunRow, check_types
from turnledger.ledger.stores.base import Store

FORMAT: Final = 1


class SealableLedger(Protocol):
    """The part of `Ledger` that sealing needs."""

    @property
    def store(self) -> Store: ...

    def verify_all(self, progress: Callable[[int], None] | None = None) -> Report: ...


class Head(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A run's last record: its version and digest (hexadecimal)."""

    run_id: str
    version: int
    digest: str

    def difference(self, last: int, found: str | None) -> str:
        """How a run differs from this head; empty if the run still contains it.

        Args:
            last: The version of the run's last record, 0 if it has none.
            found: The digest of its record at the head's version, None if there is none.
        """
        if last == 0:
            return "the seal has the run up to here, the ledger does not have it: removed"
        if last < self.version:
            return f"the seal has version {self.version}, the records end at {last}: cut"
        if found is None:
            return f"the seal has version {self.version}, which is missing: removed"
        if found != self.digest:
            return (
                f"at version {self.version} the seal has digest {self.digest}, found {found}: "
                "rewritten"
            )
        return ""


class Seal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state of a ledger at a time.

    Attributes:
        turnledger_seal: The version of this format.
        signed: Whether there is a signature. It is not part of the statement; it tells a seal
            without a signature from one whose signature was removed.
        sealed_at: ISO 8601, UTC.
        runs: The number of heads.
        events: The number of records; of a fork only its own.
        position: The highest position of a head.
        root: SHA-256 over the heads (hexadecimal).
        public_key: The raw key in base64, or None.
        signature: Over `statement`, in base64, or None.
        heads: Sorted by run id.
    """

    turnledger_seal: int
    signed: bool
    sealed_at: str
    runs: int
    events: int
    position: int
    root: str
    public_key: str | None
    signature: str | None
    heads: list[Head]

    @property
    def statement(self) -> bytes:
        """The bytes that are signed: each field but key and signature, with its length before."""
        numbers = (self.runs, self.events, self.position)
        return b"".join(
            (
                with_length(b"turnledger seal"),
                with_length(b"%d" % self.turnledger_seal),
                with_length(self.sealed_at.encode()),
                *(with_length(b"%d" % number) for number in numbers),
                with_length(bytes.fromhex(self.root)),
            )
        )


def make_seal(ledger: SealableLedger, at: int, signer: Signer | None = None) -> Seal:
    """Seal a ledger as it is now.

    Writers may append meanwhile: each run is sealed as it is when it is read. Only the last
    record of each run is compared with the index; call `verify_all` first, as the command
    `turnledger seal` does, so that no damage is sealed.

    Args:
        ledger: The ledger to seal.
        at: The time, in microseconds since 1970.
        signer: Signs the seal; None for a seal without a signature.

    Raises:
        IntegrityFailureError: The index and the records differ.
    """
    heads, events, position = [], 0, 0
    for run in every_run(ledger.store):
        check_types(run)
        head = Head(run.run_id, run.version, run.digest.hex())
        if not _is_head(head):
            raise _not_sealed(
                run, f"{run.run_id!r:.80} at version {run.version} is an invalid head"
            )
        position = max(position, _position_of_head(ledger.store, run))
        events += run.version - run.parent_version
        heads.append(head)
    heads.sort(key=attrgetter("run_id"))
    seal = Seal(
        turnledger_seal=FORMAT,
        signed=signer is not None,
        sealed_at=moment_text(at),
        runs=len(heads),
        events=events,
        position=position,
        root=_root(heads),
        public_key=None,
        signature=None,
        heads=heads,
    )
    if signer is None:
        return seal
    return msgspec.structs.replace(
        seal,
        public_key=b64encode(signer.public_key).decode(),
        signature=b64encode(signer.sign(seal.statement)).decode(),
    )


def _position_of_head(store: Store, run: RunRow) -> int:
    last = store.rows(run.run_id, 0, run.version, backwards=True, limit=1)
    if not last or (last[0][2], last[0][6]) != (run.version, run.digest):
        why = f"the index has version {run.version} with another digest than its record"
        raise _not_sealed(run, why)
    position: object = last[0][0]
    if not isinstance(position, int):
        raise _not_sealed(run, f"its position is {position!r:.80}")
    return position


def _not_sealed(run: RunRow, why: str) -> IntegrityFailureError:
    return IntegrityFailureError(
        f"Run {run.run_id!s:.80} is damaged: {why}. Nothing was sealed. Run `turnledger verify`."
    )


def seal_lines(seal: Seal) -> Iterator[bytes]:
    """The lines of a seal's file: a JSON document with one line per field and per head."""
    yield b"{\n"
    for name in seal.__struct_fields__:
        if name != "heads":
            value = msgspec.json.encode(getattr(seal, name))
            yield b'  "%b": %b,\n' % (name.encode(), value)
    yield b'  "heads": ['
    for number, head in enumerate(seal.heads):
        yield (b",\n    " if number else b"\n    ") + msgspec.json.encode(head)
    yield b"\n  ]\n}\n"


def read_seal(content: bytes, public_key: bytes | None = None) -> Seal:
    """Read a seal from its file and check its root and its signature.

    Args:
        content: The bytes of the file.
        public_key: The raw key that the seal must be signed with. Without it a signature is
            checked with the key in the seal, which shows that the seal is complete, not who
            made it.

    Raises:
        IntegrityFailureError: Not a seal, damaged, or not signed with that key.
    """
    try:
        seal = msgspec.json.decode(content, type=Seal)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = f"Not a seal of a ledger, or a damaged one: {error}."
        raise IntegrityFailureError(why) from error
    if seal.turnledger_seal != FORMAT:
        raise IntegrityFailureError(
            f"Unknown seal format {seal.turnledger_seal}: this program knows format {FORMAT}."
        )
    _check_heads(seal)
    _check_signature(seal, public_key)
    return seal


def _is_head(head: Head) -> bool:
    """Whether a head is spelled in the one way that a root covers."""
    matches = UUID_TEXT.fullmatch(head.run_id) and DIGEST_TEXT.fullmatch(head.digest)
    return matches is not None and head.version >= 1


def _check_heads(seal: Seal) -> None:
    before = ""
    for head in seal.heads:
        if not _is_head(head) or head.run_id <= before:
            raise _edited(f"its list of runs is invalid or out of order at {head.run_id!r}")
        before = head.run_id
    if seal.runs != len(seal.heads):
        raise _edited(f"it says {seal.runs} runs and lists {len(seal.heads)}")
    root = _root(seal.heads)
    if seal.root != root:
        raise _edited(f"the root of the runs that it lists is {root}, it has {seal.root}")


def _check_signature(seal: Seal, public_key: bytes | None) -> None:
    if seal.public_key is None or seal.signature is None or not seal.signed:
        if seal.signed or seal.public_key is not None or seal.signature is not None:
            raise _edited("it is half signed")
        if public_key is not None:
            raise IntegrityFailureError(
                "The seal is not signed: expected one that is signed with the given key."
            )
        return
    try:
        own = b64decode(seal.public_key, validate=True)
        signature = b64decode(seal.signature, validate=True)
    except (NotBase64, ValueError) as error:
        raise _edited("its key or signature is not base64") from error
    if (b64encode(own).decode(), b64encode(signature).decode()) != (
        seal.public_key,
        seal.signature,
    ):
        # Decoding ignores some bits of the last character, so two spellings would be accepted.
        raise _edited("its key or signature is not in the canonical spelling of base64")
    if public_key is not None and own != public_key:
        raise IntegrityFailureError(
            f"The seal is signed with another key, {seal.public_key}, than the given one."
        )
    if not is_signed_by(own, signature, seal.statement):
        raise _edited("its signature does not match its content")


def check_seal(
    ledger: SealableLedger, seal: Seal, progress: Callable[[int], None] | None = None
) -> Report:
    """Verify the whole ledger, and that everything that was sealed is still in it, unchanged.

    A highest position below the seal's is a note, not a problem: an import gives new positions,
    and since the seal has the head of every run, no lost record is missed.

    Args:
        ledger: The ledger to check.
        seal: A seal that `read_seal` has accepted.
        progress: Called now and then with the number of records so far.
    """
    report = ledger.verify_all(progress)
    missed, highest = _missed(ledger.store, seal)
    notes = list(report.notes)
    if highest < seal.position:
        why = "records are missing, or this" if missed else "nothing sealed is missing, so this"
        notes.append(
            f"the highest position is {highest}, the seal has {seal.position}: {why} is an "
            "imported copy"
        )
    return msgspec.structs.replace(report, problems=(*report.problems, *missed), notes=tuple(notes))


def _missed(store: Store, seal: Seal) -> tuple[list[Problem], int]:
    """The heads that the store lacks, and its highest position; read raw, for damage."""
    missed: list[Problem] = []
    highest = 0
    for head in seal.heads:
        row = next(iter(store.raw_rows(head.run_id.encode(), head.version)), None)
        found = None
        if row is not None and row.version == head.version:
            found = digest_text(row.digest)
            highest = _higher(highest, row.position)
        if found != head.digest:
            last = _last_version(store, head.run_id)
            version = last + 1 if 0 < last < head.version else head.version
            what = head.difference(last, found)
            missed.append(Problem(run_id=head.run_id, version=version, what=what))
    if highest < seal.position:
        highest = _higher(highest, store.last_position())
    return missed, highest


def _higher(highest: int, position: object) -> int:
    """The higher position; one that is not a number is reported by verify."""
    return max(highest, position) if isinstance(position, int) else highest


def _last_version(store: Store, run_id: str) -> int:
    versions = (row.version for row in store.raw_rows(run_id.encode()))
    return max((version for version in versions if isinstance(version, int)), default=0)


def digest_text(digest: object) -> str:
    """A stored digest in hexadecimal; a damaged ledger may hold anything in its place."""
    return digest.hex() if isinstance(digest, bytes) else f"{digest!s:.80}"


def _root(heads: Iterable[Head]) -> str:
    """SHA-256 over the heads, each field with its length before it, as in the hash chain."""
    whole = sha256()
    for head in heads:
        whole.update(with_length(head.run_id.encode()))
        whole.update(with_length(b"%d" % head.version))
        whole.update(with_length(bytes.fromhex(head.digest)))
    return whole.hexdigest()


def _edited(why: str) -> IntegrityFailureError:
    return IntegrityFailureError(f"The seal was edited or damaged: {why}.")

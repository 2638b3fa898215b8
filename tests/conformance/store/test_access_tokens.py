"""Access tokens: made once, checked by their text, expired and revoked; never with the events."""

from __future__ import annotations

import io
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.harness import StoreUnderTest
from turnledger.ledger import (
    NEW,
    CustomEvent,
    IntegrityFailureError,
    InvalidInputError,
    InvalidTokenError,
    Ledger,
    LedgerClosedError,
    RunStarted,
    StoreUnavailableError,
    SystemClock,
    TokenExpiredError,
    TokenNotFoundError,
    TokenRevokedError,
    Tokens,
    back_up,
    export_runs,
    import_runs,
    new_run_id,
)
from turnledger.ledger.clock import LAST_MOMENT
from turnledger.ledger.runs.transaction import TokenRow

DAY = timedelta(days=1)
START = 1_767_225_600_000_000  # 2026-01-01


class SetClock(SystemClock):
    """A clock that a test sets."""

    now = START

    def micros(self) -> int:
        return self.now


@pytest.fixture
def tokens(ledger: Ledger) -> Tokens:
    """The tokens of an empty ledger."""
    return Tokens(ledger)


def test_a_new_token_is_checked_by_its_text(store: StoreUnderTest) -> None:
    """Through any ledger, with its role, name and times; the text has the id and 256 bits."""
    clock = SetClock()
    made = Tokens(store.open(clock=clock)).new("writer", name="build server", expires_in=DAY)
    found = Tokens(store.open(clock=clock)).check(made.text)
    assert found == made.token
    assert (found.role, found.name, found.revoked_at) == ("writer", "build server", None)
    assert found.created_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert found.expires_at == datetime(2026, 1, 2, tzinfo=UTC)
    assert re.fullmatch(rf"tl_{found.id}_[0-9a-f]{{64}}", made.text)
    assert made.text not in f"{made!r} {made.token!r}"


def test_no_two_tokens_are_equal(tokens: Tokens) -> None:
    """Ids and secrets are random, also for the same role and name."""
    made = [tokens.new("reader") for _ in range(20)]
    assert len({one.token.id for one in made}) == 20
    assert len({one.text.rpartition("_")[2] for one in made}) == 20
    assert all(one.token.expires_at is None for one in made)
    assert [tokens.check(one.text) for one in made] == [one.token for one in made]


class StuckClock(SetClock):
    """A clock that gives one id again and again."""

    def new_id(self) -> str:
        return "01890a5d-ac96-774b-bcce-b302099a8057"


def test_an_id_that_comes_twice_replaces_no_token(store: StoreUnderTest) -> None:
    """The second is refused, and the first stays valid."""
    tokens = Tokens(store.open(clock=StuckClock()))
    first = tokens.new("reader")
    with pytest.raises(StoreUnavailableError, match=first.token.id):
        tokens.new("admin")
    assert tokens.check(first.text) == first.token
    assert tokens.list() == (first.token,)


def test_an_unknown_id_and_a_wrong_secret_are_told_alike(tokens: Tokens) -> None:
    """Nor is the text named: an error may go to a log."""
    text = tokens.new("admin").text
    prefix, token_id, secret = text.split("_")
    wrong = "0" if secret[-1] != "0" else "1"
    other_id = f"{int(token_id, 16) ^ 1:012x}"
    tried = (
        f"{prefix}_{token_id}_{secret[:-1]}{wrong}",
        f"{prefix}_{other_id}_{secret}",
        f"{prefix}_{token_id}_{tokens.new('admin').text.split('_')[2]}",
    )
    errors = []
    for wrong_text in tried:
        with pytest.raises(InvalidTokenError) as caught:
            tokens.check(wrong_text)
        assert type(caught.value) is InvalidTokenError
        errors.append(str(caught.value))
    assert len(set(errors)) == 1
    assert token_id not in errors[0]


def test_only_the_exact_text_is_a_token(tokens: Tokens) -> None:
    """No space, case, NUL or other digits are let through."""
    text = tokens.new("reader").text
    assert tokens.check(text)
    around = ("{}\n", " {}", "{}\0", "{}0", "\ud800{}", "Bearer {}")
    wrong_digit = text.replace("_", "_\N{ARABIC-INDIC DIGIT ONE}", 1)
    for given in (
        *(form.format(text) for form in around),
        *("", text[:-1], text[3:], text.upper(), text.replace("tl_", "tl-"), wrong_digit),
    ):
        with pytest.raises(InvalidTokenError):
            tokens.check(given)


def test_a_token_expires(store: StoreUnderTest) -> None:
    """At its time and not before; it stays in the list."""
    clock = SetClock()
    tokens = Tokens(store.open(clock=clock))
    made = tokens.new("reader", expires_in=DAY)
    clock.now = START + 86_400_000_000 - 1
    assert tokens.check(made.text) == made.token
    clock.now += 1
    with pytest.raises(TokenExpiredError, match=made.token.id) as caught:
        tokens.check(made.text)
    assert caught.value.expired == "2026-01-02T00:00:00.000000Z"
    assert tokens.list() == (made.token,)


def test_a_revoked_token_is_refused_everywhere_at_once(store: StoreUnderTest) -> None:
    """Revoking again changes nothing; the other tokens stay valid."""
    clock = SetClock()
    tokens, elsewhere = Tokens(store.open(clock=clock)), Tokens(store.open(clock=clock))
    made, kept = tokens.new("admin", expires_in=DAY), tokens.new("admin")
    assert elsewhere.check(made.text)
    clock.now = START + 5
    revoked = tokens.revoke(made.token.id)
    assert revoked.revoked_at == datetime(2026, 1, 1, microsecond=5, tzinfo=UTC)
    clock.now = START + 3600
    assert elsewhere.revoke(made.token.id) == revoked
    with pytest.raises(TokenRevokedError, match=made.token.id):
        elsewhere.check(made.text)
    clock.now = START + 2 * 86_400_000_000  # it would have expired by now: revoked is told first
    with pytest.raises(TokenRevokedError):
        elsewhere.check(made.text)
    assert elsewhere.check(kept.text) == kept.token


def test_an_unknown_token_is_not_revoked(tokens: Tokens) -> None:
    """TokenNotFoundError, which does not show a token's text that was given instead of its id."""
    text = tokens.new("reader").text
    for token_id in ("", "0" * 12, "x\0y", "\ud800", "'; DROP TABLE events", text):
        with pytest.raises(TokenNotFoundError, match="token list") as caught:
            tokens.revoke(token_id)
        assert text not in f"{caught.value} {caught.value.token_id}"
    assert tokens.check(text)


def test_tokens_are_listed_oldest_first(store: StoreUnderTest) -> None:
    """Without secrets, and empty in a new ledger."""
    clock = SetClock()
    tokens = Tokens(store.open(clock=clock))
    assert tokens.list() == ()
    made = []
    for role in ("reader", "writer", "admin"):
        clock.now += 1
        made.append(tokens.new(role, name=f"a {role}").token)  # type: ignore[arg-type]
    assert tokens.list() == tuple(made)


INVALID = (
    ({"role": "owner"}, "role"),
    ({"role": "Reader"}, "role"),
    ({"name": "x" * 201}, "name"),
    ({"name": "a\0b"}, "name"),
    ({"name": "\ud800"}, "name"),
    ({"expires_in": timedelta(0)}, "expires_in"),
    ({"expires_in": -DAY}, "expires_in"),
    ({"expires_in": timedelta.max}, "expires_in"),
    ({"expires_in": 60}, "expires_in"),
)


def test_invalid_arguments_make_no_token(tokens: Tokens) -> None:
    """InvalidInputError names the argument."""
    for options, named in INVALID:
        with pytest.raises(InvalidInputError, match=f"(?i)invalid {named}"):
            tokens.new(**{"role": "reader", **options})  # type: ignore[arg-type]
    assert tokens.list() == ()


def test_a_token_may_last_until_the_last_moment(store: StoreUnderTest) -> None:
    """The longest time is exact: one microsecond more is refused."""
    tokens = Tokens(store.open(clock=SetClock()))
    longest = timedelta(microseconds=LAST_MOMENT - START)
    tokens.check(tokens.new("reader", expires_in=longest).text)
    with pytest.raises(InvalidInputError):
        tokens.new("reader", expires_in=longest + timedelta(microseconds=1))


def test_a_secret_in_a_name_is_redacted(tokens: Tokens) -> None:
    """As in a worker's name: a label is shown to people."""
    text = tokens.new("reader").text
    assert text not in tokens.new("reader", name=f"like {text}").token.name


def test_only_a_hash_is_stored(ledger: Ledger) -> None:
    """The row has the SHA-256 of the secret."""
    made = Tokens(ledger).new("reader")
    secret = made.text.rpartition("_")[2]
    (row,) = ledger.store.tokens()
    assert row == ledger.store.token(made.token.id)
    assert row.secret_hash == sha256(secret.encode()).digest()
    assert secret not in repr(row)


def test_a_row_that_was_changed_into_nonsense_is_refused(ledger: Ledger) -> None:
    """An unknown role must not count as any role."""
    made = Tokens(ledger).new("reader")
    row = ledger.store.token(made.token.id)
    assert row is not None
    changes: tuple[Any, ...] = (
        *({"role": role} for role in ("owner", "", "Reader")),
        *({"expires_at": 2**62}, {"created_at": -(2**62)}),
    )
    for change in changes:
        changed = row._replace(**change)
        ledger.store.write(lambda tx, changed=changed: tx.put_token(changed))
        with pytest.raises(IntegrityFailureError):
            Tokens(ledger).check(made.text)
        with pytest.raises(IntegrityFailureError):
            Tokens(ledger).list()


def test_a_write_that_fails_leaves_no_token(ledger: Ledger) -> None:
    """Within a transaction, a token is written with all else or not at all."""
    row = TokenRow("0" * 12, "", "reader", b"\0" * 32, 1, None, None)

    def fails(tx: Any) -> None:
        tx.put_token(row)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ledger.store.write(fails)
    assert ledger.store.tokens() == []


def test_tokens_of_a_closed_ledger_are_refused(ledger: Ledger) -> None:
    """LedgerClosedError, as for all else."""
    tokens = Tokens(ledger)
    text = tokens.new("reader").text
    ledger.close()
    for attempt in (
        lambda: tokens.check(text),
        tokens.list,
        lambda: tokens.new("reader"),
        lambda: tokens.revoke("0" * 12),
    ):
        with pytest.raises(LedgerClosedError):
            attempt()


def test_they_are_beside_the_chain(ledger: Ledger) -> None:
    """No event is written, no position is taken, and verify has nothing to say."""
    run = new_run_id()
    ledger.append(run, RunStarted(), NEW)
    before = [(record.position, record.digest) for record in ledger.tail()]
    tokens = Tokens(ledger)
    tokens.revoke(tokens.new("admin").token.id)
    assert [(record.position, record.digest) for record in ledger.tail()] == before
    assert ledger.verify_all().ok


def test_they_are_not_exported(ledger: Ledger, tmp_path: Path) -> None:
    """Neither id nor hash is in the file, and an import brings none."""
    ledger.append(new_run_id(), RunStarted(), NEW)
    made = Tokens(ledger).new("admin", name="the name of it")
    file = io.BytesIO()
    export_runs(ledger, file)
    hashed = sha256(made.text.rpartition("_")[2].encode()).hexdigest()
    for trace in (made.token.id, hashed, "the name of it"):
        assert trace.encode() not in file.getvalue()
    file.seek(0)
    with Ledger.open(tmp_path / "other.db") as other:
        import_runs(other, file)
        assert Tokens(other).list() == ()


def test_they_are_not_backed_up(ledger: Ledger, tmp_path: Path) -> None:
    """A copy is opened by none of the ledger's tokens, and its bytes have no trace of them."""
    ledger.append(new_run_id(), RunStarted(), NEW)
    made = Tokens(ledger).new("admin", name="the name of it")
    file = tmp_path / "copy.db"
    back_up(ledger, file)
    content = file.read_bytes()
    hashed = sha256(made.text.rpartition("_")[2].encode()).digest()
    for trace in (made.token.id.encode(), hashed, b"the name of it"):
        assert trace not in content
    with Ledger.open(file) as copy:
        assert Tokens(copy).list() == ()
        with pytest.raises(InvalidTokenError):
            Tokens(copy).check(made.text)
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("SELECT count(*) FROM access_tokens").fetchone() == (0,)
    assert Tokens(ledger).check(made.text) == made.token


def test_a_token_in_an_event_is_redacted(ledger: Ledger) -> None:
    """Pasted into a message, it is stored nowhere."""
    run, text = new_run_id(), Tokens(ledger).new("admin").text
    ledger.append(run, CustomEvent(kind="tests.note", data={"text": f"use {text}, please"}), NEW)
    (record,) = ledger.read(run)
    assert "[redacted: turnledger-token]" in record.data
    assert text.rpartition("_")[2] not in record.data


REVOKER = """
import sys
from turnledger.ledger import Ledger, Tokens
with Ledger.open(sys.argv[1]) as ledger:
    print(Tokens(ledger).check(sys.argv[2]).role)
    Tokens(ledger).revoke(sys.argv[3])
"""


def test_another_process_revokes_it(shared_store: StoreUnderTest) -> None:
    """What one process makes, another checks and revokes, and the first sees that."""
    tokens = Tokens(shared_store.open())
    made = tokens.new("writer")
    done = subprocess.run(
        [sys.executable, "-c", REVOKER, shared_store.url, made.text, made.token.id],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "writer\n"
    with pytest.raises(TokenRevokedError):
        tokens.check(made.text)

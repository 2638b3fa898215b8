"""Opening a ledger: what can't be opened is an error of ours, and nothing of others is touched."""

from __future__ import annotations

from math import inf, isnan, nan
from pathlib import Path
from traceback import format_exception
from typing import Any

import pytest

from tests.conformance.harness import STORES, store_under_test
from tests.conformance.samples import note
from turnledger.ledger import (
    ANY,
    NEW,
    InvalidInputError,
    InvalidUrlError,
    Ledger,
    NotALedgerError,
    RunClaimedError,
    StoreUnavailableError,
    new_run_id,
)
from turnledger.ledger.stores.sqlite import open as opening
from turnledger.ledger.stores.sqlite.store import SQLiteStore


@pytest.mark.parametrize("wait", [-1, -5.0, -0.001, inf, -inf, nan, 1e10, 86_401])
@pytest.mark.parametrize("kind", STORES)
def test_a_wait_is_between_nothing_and_a_day(kind: str, wait: float, tmp_path: Path) -> None:
    """On every store, when it is opened, and not when there is something to wait for."""
    with store_under_test(kind, tmp_path) as store:
        store.open()
        why = r"invalid wait: got nan .*not NaN" if isnan(wait) else r"Invalid wait .*a day"
        with pytest.raises(InvalidInputError, match=why):
            store.open(wait=wait)


@pytest.mark.parametrize("wait", [0, 0.5, 86_400])
@pytest.mark.parametrize("kind", STORES)
def test_no_wait_and_a_long_one_are_fine(kind: str, wait: float, tmp_path: Path) -> None:
    """Where nobody else is, it does not matter."""
    with store_under_test(kind, tmp_path) as store:
        assert store.open(wait=wait).append(new_run_id(), note(), NEW).version == 1


@pytest.mark.parametrize("name", ["a\0b.db", "sqlite:///a\0b.db", "\ud800.db", "x://[y"])
def test_what_can_be_no_name_is_an_invalid_url(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A NUL, half a character, half an address: an error of ours, and nothing is made."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidUrlError):
        Ledger.open(name)
    assert list(tmp_path.iterdir()) == []


def test_an_address_that_can_not_be_read_is_named_without_its_password() -> None:
    """Python's own error would show it."""
    url = f"postgresql://me:{'s3'}cret@a\u2100b/db"  # a traceback shows this line
    with pytest.raises(InvalidUrlError, match="host") as caught:
        Ledger.open(url)
    assert "s3cret" not in "".join(format_exception(caught.value))


@pytest.mark.parametrize("name", ["loop", "loop/runs.db", "n" * 300])
@pytest.mark.parametrize("create", [True, False])
def test_a_path_that_leads_nowhere_is_an_error_of_ours(
    name: str, create: bool, tmp_path: Path
) -> None:
    """Links in a circle, a name that is too long."""
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StoreUnavailableError, match=name[:4]):
        Ledger.open(tmp_path / name, create=create)
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


def test_a_folder_that_was_removed_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path in a working folder that is gone names nothing."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(StoreUnavailableError, match=r"runs\.db can't be opened"):
        Ledger.open("runs.db")


@pytest.mark.parametrize("kind", ["claimed", "opened"])
def test_who_is_refused_leaves_the_locks_of_those_who_came_meanwhile(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was put in its place just now: for the next one who looked it was a ledger."""
    path, run = tmp_path / "runs.db", new_run_id()
    with Ledger.open(tmp_path / "copy.db") as copy:
        copy.append(run, note(), NEW)
    path.write_bytes(b"half of a copy" * 100)
    come: list[Ledger] = []
    store = SQLiteStore.open

    def come_meanwhile(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        (tmp_path / "copy.db").replace(path)
        come.append(Ledger.open(path))
        if kind == "claimed":
            come[0].claim(run)
        raise NotALedgerError("half of a copy")

    monkeypatch.setattr(SQLiteStore, "open", come_meanwhile)
    with pytest.raises(NotALedgerError):
        Ledger.open(path)
    assert SQLiteStore.open == store
    locks = Path(f"{path}-locks")
    assert {"gate", "write"} <= {file.name for file in locks.iterdir()}
    with come[0] as theirs, Ledger.open(path) as ours:
        if kind == "claimed":
            with pytest.raises(RunClaimedError):
                ours.claim(run)
        assert theirs.append(run, note(), ANY).version >= 2


def test_who_is_refused_before_making_locks_removes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made them meanwhile has to do with them."""
    path, locks = tmp_path / "runs.db", tmp_path / "runs.db-locks"
    path.write_bytes(b"short")
    size = opening.file_size

    def make_meanwhile(of: Path) -> int:
        locks.mkdir(exist_ok=True)
        return size(of)

    monkeypatch.setattr(opening, "file_size", make_meanwhile)
    with pytest.raises(NotALedgerError):
        Ledger.open(path)
    assert locks.exists()

"""A session with its resources: one snapshot without a ledger, events and blobs with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.states import Plan, Step, new_run, prepared
from turnledger.ledger import Ledger, ResourceSnapshotted, blob_name
from turnledger.runtime import (
    CompositeSnapshot,
    ExecutionState,
    ResourceSnapshotError,
    Session,
    Snapshot,
    SnapshotableFilesystem,
    SnapshotRestoreError,
    enable_inner_message_recording,
)
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.session import Overlay

STORES = ["memory", "sqlite"]


class Shelf:
    """A resource that is no directory."""

    def __init__(self) -> None:
        self.books: list[str] = []
        self.restored = 0

    def snapshot(self) -> Any:
        return {"books": self.books}

    def restore(self, snapshot: Any, /) -> None:
        self.books = list(snapshot["books"])
        self.restored += 1


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def state(root: Path, session: Session | None = None) -> ExecutionState:
    resources = {"files": SnapshotableFilesystem(root), "shelf": Shelf()}
    return ExecutionState(session=session or prepared(Session()), resources=resources)


# --- without a ledger ----------------------------------------------------------------


def test_a_composite_snapshot_brings_back_session_and_resources(root: Path) -> None:
    """S2-13: in another process too, from its JSON alone."""
    first = state(root)
    first.session[Step].append(Step("a"))
    first.resources["shelf"].books.append("Emma")
    (root / "a.bin").write_bytes(b"\x00\xff")
    text = first.snapshot().to_json()

    (root / "a.bin").write_bytes(b"changed")
    (root / "new").write_text("new")
    other = state(root)
    other.restore(CompositeSnapshot.from_json(text))
    assert other.session[Step].all() == (Step("a"),)
    assert other.resources["shelf"].books == ["Emma"]
    assert (root / "a.bin").read_bytes() == b"\x00\xff"
    assert not (root / "new").exists()


def test_a_composite_snapshot_is_equal_to_what_comes_back(root: Path) -> None:
    """S2-13: session and resources are its fields, and a tag goes along."""
    (root / "a").write_text("one")
    snapshot = state(root).snapshot(tag="here")
    assert CompositeSnapshot.from_json(snapshot.to_json()) == snapshot
    assert CompositeSnapshot.from_json(snapshot.to_json().encode()) == snapshot
    assert snapshot.session.tag == "here"
    assert set(snapshot.resources) == {"files", "shelf"}
    assert list(json.loads(snapshot.to_json())) == ["session", "resources"]


def test_a_state_may_have_no_resources() -> None:
    """Then it is the session."""
    bare = ExecutionState(session=Session())
    assert bare.resources == {}
    assert bare.snapshot() == CompositeSnapshot(session=Snapshot())
    bare.restore(CompositeSnapshot(session=Snapshot(), resources={}))


def test_slices_that_a_tool_is_the_first_to_name_come_back(root: Path) -> None:
    """S2-24: create_session need not know them."""
    first = state(root)
    first.session[Step].append(Step("a"))
    other = ExecutionState(session=Session(), resources=first.resources)
    other.restore(first.snapshot())
    assert other.session[Step].all() == (Step("a"),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"session": {"slices": []}, "resources": 5}',
        '{"session": 5, "resources": {}}',
        '{"session": {}, "resources": {}}',
        '{"resources": {}}',
    ],
)
def test_what_is_no_composite_snapshot_is_refused(text: str) -> None:
    """As SnapshotRestoreError."""
    with pytest.raises(SnapshotRestoreError):
        CompositeSnapshot.from_json(text)


@pytest.mark.parametrize(
    "resources",
    [
        {"unknown": 1},
        {"files": {"files": {"../a": blob_name(b"")}, "blobs": {}}},
        {"files": {"files": {"a": blob_name(b"one")}}},
        {"files": 5},
    ],
)
def test_a_snapshot_that_can_not_be_restored_changes_nothing(
    root: Path, resources: dict[str, Any]
) -> None:
    """Neither the session nor a resource."""
    now = state(root)
    now.session[Step].append(Step("a"))
    (root / "kept").write_text("kept")
    with pytest.raises(SnapshotRestoreError):
        now.restore(CompositeSnapshot(session=Snapshot(), resources=resources))
    assert now.session[Step].all() == (Step("a"),)
    assert [path.name for path in root.iterdir()] == ["kept"]


def test_a_session_that_can_not_be_restored_leaves_the_resources(root: Path) -> None:
    """The session goes first."""
    now = state(root)
    first = now.snapshot()
    (root / "kept").write_text("kept")
    text = first.to_json().replace(
        '"slices":[]', '"slices":[{"slice_type":":","item_type":":","items":[]}]'
    )
    with pytest.raises(SnapshotRestoreError):
        now.restore(CompositeSnapshot.from_json(text))
    assert (root / "kept").exists()
    assert now.resources["shelf"].restored == 0


# --- with a ledger -------------------------------------------------------------------


def test_what_changed_in_resources_is_recorded_with_its_bytes(ledger: Ledger, root: Path) -> None:
    """And nothing if nothing changed."""
    now = state(root)
    journal = new_run(ledger, now.session)
    now.session.attach(journal)
    (root / "a").write_text("one")
    (root / "b").write_text("two")
    now.record(journal)
    journal.commit()
    (root / "b").write_text("TWO")
    (root / "a").unlink()
    now.record(journal)
    now.record(journal)
    journal.commit()
    before = journal.known.version
    now.record(journal)
    assert journal.known.version == before

    found = [r.event for r in ledger.read(journal.run_id)]
    changes = [
        event
        for event in found
        if isinstance(event, ResourceSnapshotted) and event.resource == "files"
    ]
    assert [(set(one.files), one.removed) for one in changes] == [({"a", "b"}, ()), ({"b"}, ("a",))]
    assert ledger.blob(blob_name(b"TWO")) == b"TWO"
    assert journal.known.session.resources["files"] == {"b": blob_name(b"TWO")}
    assert len([one for one in found if isinstance(one, ResourceSnapshotted)]) == 3


def test_resources_go_back_to_what_was_recorded(ledger: Ledger, root: Path) -> None:
    """In another process, from the run's events and the ledger's blobs."""
    now = state(root)
    journal = new_run(ledger, now.session)
    now.session.attach(journal)
    (root / "a").write_text("one")
    now.resources["shelf"].books.append("Emma")
    now.record(journal)
    journal.commit()
    (root / "a").write_text("never recorded")

    session = prepared(Session())
    resumed = Journal(ledger, journal.run_id, declarations=session.declarations)
    other = state(root, session)
    other.restore_recorded(resumed.known, resumed.blob)
    assert (root / "a").read_text() == "one"
    assert other.resources["shelf"].books == ["Emma"]


def test_what_is_pending_can_be_restored_too(ledger: Ledger, root: Path) -> None:
    """Its bytes are not in the ledger yet."""
    now = state(root)
    journal = new_run(ledger, now.session)
    (root / "a").write_text("one")
    now.record(journal)
    (root / "a").unlink()
    now.restore_recorded(journal.known, journal.blob)
    assert (root / "a").read_text() == "one"


def test_a_tools_files_are_recorded_with_the_tool_or_not_at_all(ledger: Ledger, root: Path) -> None:
    """What is dropped is no base for the next difference."""
    now = state(root)
    journal = new_run(ledger, now.session)
    now.session.attach(journal)
    now.record(journal)
    journal.commit()
    for name, kept in (("dropped", False), ("kept", True)):
        overlay = Overlay(journal, name)
        (root / name).write_text(name)
        now.record(overlay)
        events = overlay.close()
        if kept:
            journal.add(*events, blobs=overlay.blobs)
        else:
            now.restore_recorded(journal.known, journal.blob)
    journal.commit()
    assert journal.known.session.resources["files"] == {"kept": blob_name(b"kept")}
    assert [path.name for path in root.iterdir()] == ["kept"]


def test_a_resource_that_was_never_recorded_stays_as_it_is(ledger: Ledger, root: Path) -> None:
    """And an empty directory that was recorded is emptied again."""
    now = state(root)
    journal = new_run(ledger, now.session)
    (root / "mine").write_text("mine")
    now.restore_recorded(journal.known, journal.blob)
    assert (root / "mine").exists()
    (root / "mine").unlink()
    now.record(journal)
    (root / "later").write_text("later")
    now.restore_recorded(journal.known, journal.blob)
    assert list(root.iterdir()) == []


def test_files_of_a_continued_run_are_known_in_the_next(ledger: Ledger, root: Path) -> None:
    """A session that is reused goes on with its directory."""
    now = state(root)
    journal = new_run(ledger, now.session)
    now.session.attach(journal)
    (root / "a").write_text("one")
    now.record(journal)
    journal.commit()
    child = ledger.continuation(journal.run_id)
    following = Journal(ledger, child, declarations=now.session.declarations)
    now.session.attach(following)
    now.record(following)
    assert not following.has_pending
    assert following.known.session.resources["files"] == {"a": blob_name(b"one")}


def test_a_resource_that_can_not_be_snapshotted_says_so(root: Path) -> None:
    """By the file that is the trouble; the state is as it was."""
    (root / "out").symlink_to("/")
    now = state(root)
    with pytest.raises(ResourceSnapshotError, match="out"):
        now.snapshot()


def test_what_was_recorded_of_a_resource_must_be_readable(ledger: Ledger, root: Path) -> None:
    """A directory that became something else is told."""
    now = state(root)
    journal = new_run(ledger, now.session)
    (root / "a").write_text("no json")
    now.record(journal)
    swapped = ExecutionState(session=now.session, resources={"files": Shelf()})
    with pytest.raises(SnapshotRestoreError, match="'files'"):
        swapped.restore_recorded(journal.known, journal.blob)


def test_a_snapshot_within_a_tool_has_that_tools_state(root: Path) -> None:
    """It is the session's, as the tool sees it."""
    now = state(root)
    enable_inner_message_recording(now.session)
    overlay = Overlay(now.session.journal, "c1")
    with now.session.scope(overlay):
        now.session[Plan].append(Plan())
        assert len(now.snapshot().session.slices) == 1
    assert now.snapshot().session.slices == ()

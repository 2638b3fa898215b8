"""Export files that are not as they were exported: each is refused, with its line."""

from __future__ import annotations

import base64
from collections.abc import Callable
from uuid import uuid4

import pytest

from tests.conformance.samples import note, notes
from tests.unit.ledger.export_files import Lines, export, family, parsed, relinked, take, written
from turnledger.ledger import (
    NEW,
    IntegrityFailureError,
    InvalidInputError,
    Ledger,
    RunStarted,
    UnknownEventTypeError,
    blob_name,
    new_run_id,
)
from turnledger.ledger.events.types import CATALOGUE


def _change(place: int, **fields: object) -> Callable[[Lines], None]:
    return lambda lines: lines[place].update(fields)


def _starts_from_itself(lines: Lines) -> None:
    child = next(one for one in lines if "parent" in one.get("data", ()))
    child["data"]["parent"] = child["run_id"]


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (_change(2, data={"kind": "test.note"}), 3),
        (_change(2, event_id=str(uuid4())), 3),
        (_change(2, recorded_at="2020-01-01T00:00:00.000000Z"), 3),
        (_change(2, recorded_at="yesterday"), 3),
        (_change(2, recorded_at="2020-01-01T00:00:00Z"), 3),
        (_change(2, type="run.completed"), 3),
        (_change(2, version=7), 3),
        (_change(2, version="2"), 3),
        (_change(2, digest="00" * 32), 3),
        (_change(2, digest="xyz"), 3),
        (_change(2, run_id="nobody"), 3),
        (_change(2, run_id=str(uuid4()).upper()), 3),
        (_change(2, colour="red"), 3),
        (lambda lines: lines.pop(2), 3),
        (lambda lines: lines.insert(2, lines[2]), 4),
        (lambda lines: lines.insert(3, lines.pop(2)), 3),
        (lambda lines: lines.pop(), 14),
        (lambda lines: lines.append(lines[3]), 15),
        (_change(-1, end={"runs": 4, "records": 12, "blobs": 1}), 14),
        (_change(5, content=base64.b64encode(b"other").decode()), 6),
        (_change(5, blob=blob_name(b"other")), 6),
        (_change(5, content="???"), 6),
        (lambda lines: lines.pop(5), 6),
        (lambda lines: lines.insert(2, lines.pop(5)), 4),
        (lambda lines: lines.insert(12, lines.pop(5)), 6),
        (lambda lines: lines.insert(2, lines.pop(8)), 3),
        (_starts_from_itself, 9),
        (_change(0, turnledger=None), 1),
        (lambda lines: lines.pop(0), 1),
    ],
)
def test_damage_is_named_by_its_line(
    source: Ledger, target: Ledger, damage: Callable[[Lines], None], line: int
) -> None:
    """Whatever is changed, left out, doubled or moved is found, before anything is written."""
    family(source)
    content = export(source)
    lines = parsed(content)
    assert len(lines) == 14
    assert written(lines) == content
    damage(lines)
    with pytest.raises(IntegrityFailureError, match="line ") as caught:
        take(target, written(lines))
    found = int(str(caught.value).split()[1].rstrip(":"))
    assert found == min(line, len(lines))
    assert list(target.runs()) == []
    assert list(target.store.blob_names()) == []


@pytest.mark.parametrize("seed", range(8))
def test_any_changed_byte_is_noticed(target: Ledger, source: Ledger, seed: int) -> None:
    """A changed byte anywhere gives a typed error; only the catalogue's number is a hint."""
    run = new_run_id()
    source.append(run, [RunStarted(tags={"a": "b"}), note(1)], NEW)
    content = export(source)
    catalogue = content.index(b"}") - 1
    for place in range(seed, len(content), 8):
        if place == catalogue:
            continue
        changed = bytearray(content)
        changed[place] ^= 1 << (place % 7)
        with pytest.raises((IntegrityFailureError, InvalidInputError)):
            take(target, bytes(changed))
    assert list(target.runs()) == []


def test_a_fork_point_must_be_in_the_file(source: Ledger, target: Ledger) -> None:
    """A child without its parent's records before it is refused."""
    run, child, *_ = family(source)
    take(target, export(source, run))
    lines = [line for line in parsed(export(source, child)) if line.get("run_id") != str(run)]
    with pytest.raises(IntegrityFailureError, match="not in the file before it"):
        take(target, written(lines))


def test_a_fork_point_must_end_a_commit(source: Ledger, target: Ledger) -> None:
    """A child that goes on from the middle of a commit was made by no ledger."""
    run = new_run_id()
    source.append(run, notes(2), NEW)
    lines = parsed(export(source))
    child = str(new_run_id())
    forged = {
        **lines[1],
        "run_id": child,
        "version": 2,
        "type": "run.started",
        "event_id": str(uuid4()),
        "data": {"parent": str(run), "at": 1, "kind": "fork"},
    }
    lines.insert(3, forged)
    with pytest.raises(IntegrityFailureError, match=r"line 4.*middle of a commit"):
        take(target, written(lines))


def test_a_run_starts_once(source: Ledger, target: Ledger) -> None:
    """A second beginning within a run is refused although its digests fit."""
    source.append(new_run_id(), notes(2), NEW)
    lines = parsed(export(source))
    lines[2].update(type="run.started", data={})
    with pytest.raises(IntegrityFailureError, match=r"line 3.*only once"):
        take(target, relinked(lines))


def test_an_event_id_stands_once(source: Ledger, target: Ledger) -> None:
    """Two records under one id are refused although their digests fit."""
    source.append(new_run_id(), notes(2), NEW)
    source.append(new_run_id(), notes(1), NEW)
    lines = parsed(export(source))
    lines[3]["event_id"] = lines[1]["event_id"]
    with pytest.raises(IntegrityFailureError, match=r"line 4.*twice"):
        take(target, relinked(lines))
    assert list(target.runs()) == []


@pytest.mark.parametrize("newer", [0, 1])
def test_an_unknown_type_says_whose_fault_it_is(source: Ledger, target: Ledger, newer: int) -> None:
    """A type of a newer catalogue tells that the program is too old, else that data is wrong."""
    source.append(new_run_id(), notes(1), NEW)
    lines = parsed(export(source))
    lines[0]["catalogue"] = CATALOGUE + newer
    lines[1]["type"] = "run.teleported"
    with pytest.raises(UnknownEventTypeError, match="line 2") as caught:
        take(target, relinked(lines))
    assert caught.value.program_too_old is bool(newer)


def test_an_event_that_does_not_fit_its_type_is_damage(source: Ledger, target: Ledger) -> None:
    """Data that its type can't hold is refused although its digest fits."""
    source.append(new_run_id(), notes(1), NEW)
    lines = parsed(export(source))
    lines[1]["data"] = {"kind": "nonamespace"}
    with pytest.raises(IntegrityFailureError, match=r"line 2.*kind"):
        take(target, relinked(lines))


def test_another_format_is_refused(source: Ledger, target: Ledger) -> None:
    """A file of a later format asks for a newer program."""
    lines = parsed(export(source))
    lines[0]["turnledger"] = 3
    with pytest.raises(InvalidInputError, match="format 3"):
        take(target, written(lines))


def test_an_empty_ledger_exports_an_empty_file(source: Ledger, target: Ledger) -> None:
    """A ledger without runs gives a file that can be imported."""
    assert take(target, export(source)).records == 0

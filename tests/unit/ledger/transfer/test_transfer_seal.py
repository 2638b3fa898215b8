"""Exports that carry a seal: what fits goes through, and nothing else does."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

import msgspec
import pytest

from tests.conformance.samples import note, notes
from tests.unit.ledger.export_files import export, family, parsed, take, written
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    ImportReport,
    IntegrityFailureError,
    InvalidInputError,
    Ledger,
    Limits,
    MissingDependencyError,
    export_runs,
    import_runs,
    new_run_id,
)
from turnledger.ledger.integrity.seal import Seal, check_seal, make_seal, read_seal, seal_lines
from turnledger.ledger.integrity.signing import Signer, new_key, read_public_key, read_signer
from turnledger.ledger.transfer.seal_check import seal_line

NOW = 1_700_000_000_000_000


class Keys:
    """Two people who sign."""

    def __init__(self, folder: Path) -> None:
        for name in ("ours", "theirs"):
            (folder / f"{name}.pub").write_bytes(new_key(folder / f"{name}.key"))
        self.ours, self.theirs = (read_signer(folder / f"{n}.key") for n in ("ours", "theirs"))
        self.our_public = read_public_key(folder / "ours.pub")


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


def counts(report: ImportReport) -> tuple[int, int, int]:
    return report.sealed_runs, report.grown_runs, report.unsealed_runs


def test_a_seal_travels_with_the_runs(source: Ledger, target: Ledger, keys: Keys) -> None:
    """It is the same seal there, fits the copy, and goes on from there."""
    family(source)
    seal = make_seal(source, NOW, keys.ours)
    content = export(source, seal=seal)
    report = import_runs(target, io.BytesIO(content), public_key=keys.our_public)
    assert report.seal == seal
    assert counts(report) == (4, 0, 0)
    assert check_seal(target, seal).ok
    assert export(target, seal=report.seal) == content


def test_the_file_is_the_other_one_with_a_line_more(source: Ledger) -> None:
    """Format 2 and the seal on line 2; everything else is what it is without a seal."""
    family(source)
    seal = make_seal(source, NOW)
    lines, plain = export(source, seal=seal).splitlines(), export(source).splitlines()
    assert lines[0] == plain[0].replace(b'"turnledger":1', b'"turnledger":2')
    assert lines[1] == b'{"seal":' + msgspec.json.encode(seal) + b"}"
    assert lines[2:] == plain[1:]


def test_a_part_carries_the_whole_seal(source: Ledger, target: Ledger) -> None:
    """Some runs, and a seal that has others too: those are not missed."""
    run, *_ = family(source)
    source.append(new_run_id(), note(), NEW)
    seal = make_seal(source, NOW)
    report = take(target, export(source, run, seal=seal))
    assert (report.runs, report.seal) == (1, seal)
    assert counts(report) == (1, 0, 0)
    assert report.missing_runs == 4


def test_what_came_after_the_seal_is_told(source: Ledger, target: Ledger) -> None:
    """A run that grew and one that is new are counted, and taken."""
    run, *_ = family(source)
    seal = make_seal(source, NOW)
    source.append(run, note(), ANY)
    source.append(new_run_id(), note(), NEW)
    report = take(target, export(source, seal=seal))
    assert counts(report) == (4, 1, 1)
    assert target.verify_all().ok


def forged(seal: Seal, run: UUID, **fields: object) -> Seal:
    """An unsigned seal that has something else to say of one run, with a root that fits."""
    heads = [
        msgspec.structs.replace(head, **fields) if head.run_id == str(run) else head
        for head in seal.heads
    ]
    with pytest.raises(IntegrityFailureError) as caught:
        read_seal(msgspec.json.encode(msgspec.structs.replace(seal, heads=heads)))
    root = str(caught.value).split(" is ")[-1].split(",")[0]
    assert len(root) == 64
    return msgspec.structs.replace(seal, heads=heads, root=root)


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"version": 9}, "cut"), ({"digest": "ab" * 32}, "rewritten"), ({"version": 1}, "rewritten")],
)
def test_runs_that_do_not_fit_are_not_exported(
    source: Ledger, fields: dict[str, object], words: str
) -> None:
    """Nothing is written, and the error names the run and what is wrong with it."""
    run, child, *_ = family(source)
    seal = forged(make_seal(source, NOW), run, **fields)
    out = io.BytesIO()
    with pytest.raises(IntegrityFailureError, match=words) as caught:
        export_runs(source, out, [child], seal=seal)
    assert str(run) in str(caught.value)
    assert out.getvalue() == b""


def resealed(content: bytes, seal: Seal) -> bytes:
    """A file with another seal in the place of its own."""
    first, _, *rest = content.splitlines(keepends=True)
    return b"".join([first, seal_line(seal), *rest])


@pytest.mark.parametrize(
    ("fields", "line", "words"),
    [
        ({"version": 9}, 9, "cut"),
        ({"digest": "ab" * 32}, 9, "rewritten"),
        ({"version": 1}, 3, "rewritten"),
    ],
)
def test_runs_that_do_not_fit_are_not_imported(
    source: Ledger, target: Ledger, fields: dict[str, object], line: int, words: str
) -> None:
    """The line is named, and nothing is written."""
    run, *_ = family(source)
    seal = make_seal(source, NOW)
    content = resealed(export(source, seal=seal), forged(seal, run, **fields))
    with pytest.raises(IntegrityFailureError, match=rf"line {line}: run {run}.*{words}"):
        take(target, content)
    assert list(target.runs()) == []


def test_a_last_run_that_was_cut_is_found(source: Ledger, target: Ledger) -> None:
    """The end of the file ends its last run too, and the counts were made to fit."""
    run = new_run_id()
    source.append(run, notes(3), NEW)
    seal = make_seal(source, NOW)
    lines = parsed(export(source, seal=seal))
    del lines[4]
    lines[-1]["end"]["records"] = 2
    with pytest.raises(IntegrityFailureError, match=rf"line 4: run {run}.*version 3.*cut"):
        take(target, written(lines))


def test_a_rewritten_file_needs_another_seal(source: Ledger, target: Ledger, keys: Keys) -> None:
    """New digests do not fit the seal; a new seal does not fit the key."""
    run = new_run_id()
    source.append(run, notes(3), NEW)
    honest = make_seal(source, NOW, keys.ours)
    with Ledger.open("memory://") as forger:
        forger.append(run, notes(3, start=7), NEW)
        theirs = export(forger, seal=make_seal(forger, NOW, keys.theirs))
    with pytest.raises(IntegrityFailureError, match="rewritten"):
        take(target, resealed(theirs, honest))
    with pytest.raises(IntegrityFailureError, match=r"line 2.*another key"):
        import_runs(target, io.BytesIO(theirs), public_key=keys.our_public)
    assert list(target.runs()) == []
    assert take(target, theirs).imported == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.replace(b'"events":', b'"events":1'),
        lambda line: line.replace(b'"signed":true', b'"signed":false'),
        lambda line: line.replace(b'"runs":4', b'"runs":3'),
        lambda line: line.replace(b'"heads":', b'"heads": '),
        lambda line: line.replace(b'{"seal"', b'{"deal"'),
        lambda line: b"",
        lambda line: b"null\n",
        lambda line: b'{"seal":null}\n',
        lambda line: line + line,
    ],
)
def test_a_damaged_seal_is_refused(
    source: Ledger, target: Ledger, keys: Keys, change: Callable[[bytes], bytes]
) -> None:
    """However it was changed, left out or doubled; nothing is written."""
    family(source)
    first, line, *rest = export(source, seal=make_seal(source, NOW, keys.ours)).splitlines(True)
    assert change(line) != line
    with pytest.raises(IntegrityFailureError, match=r"line [23]:"):
        take(target, b"".join([first, change(line), *rest]))
    assert list(target.runs()) == []


def test_a_seal_in_a_file_that_has_none_is_refused(source: Ledger, target: Ledger) -> None:
    """The number of the format says whether there is one, so that none is passed over."""
    family(source)
    content = export(source, seal=make_seal(source, NOW))
    older = content.replace(b'"turnledger":2', b'"turnledger":1', 1)
    with pytest.raises(IntegrityFailureError, match="line 2"):
        take(target, older)


def test_who_wants_a_seal_gets_one_or_an_error(source: Ledger, target: Ledger, keys: Keys) -> None:
    """No seal, an unsigned one and another's are refused where our signature is wanted."""
    family(source)

    def attempt(content: bytes, **wanted: object) -> ImportReport:
        return import_runs(target, io.BytesIO(content), **wanted)  # type: ignore[arg-type]

    for wanted in ({"public_key": keys.our_public}, {"sealed": True}):
        with pytest.raises(IntegrityFailureError, match="carries no seal"):
            attempt(export(source), **wanted)
    unsigned = export(source, seal=make_seal(source, NOW))
    with pytest.raises(IntegrityFailureError, match="not signed"):
        attempt(unsigned, public_key=keys.our_public)
    assert list(target.runs()) == []
    assert attempt(unsigned, sealed=True).imported == 11


def test_a_signature_needs_its_package(
    source: Ledger, target: Ledger, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is not installed, a signed seal is not passed over but asks for it."""
    family(source)
    content = export(source, seal=make_seal(source, NOW, keys.ours))

    def missing(*_: object) -> bool:
        raise MissingDependencyError("Checking", "seal")

    monkeypatch.setattr("turnledger.ledger.integrity.seal.is_signed_by", missing)
    with pytest.raises(MissingDependencyError):
        take(target, content)
    assert list(target.runs()) == []


def test_a_seal_s_file_is_not_its_line(source: Ledger, keys: Keys) -> None:
    """The file for people and the line say the same, whichever is read."""
    family(source)
    for signer in (None, keys.ours):
        seal = make_seal(source, NOW, signer)
        line = parsed(export(source, seal=seal))[1]["seal"]
        assert read_seal(b"".join(seal_lines(seal))) == seal
        assert read_seal(msgspec.json.encode(line)) == seal


def test_a_long_seal_is_no_long_event(source: Ledger, keys: Keys) -> None:
    """A seal of many runs is read by a ledger that takes short events only."""
    for _ in range(100):
        source.append(new_run_id(), note(), NEW)
    content = export(source, seal=make_seal(source, NOW, Signer(*keys.ours)))
    assert len(content.splitlines()[1]) > 10_000
    with Ledger.open("memory://", limits=Limits(max_event_bytes=99, max_blob_bytes=99)) as strict:
        assert take(strict, content).imported == 100


def test_a_check_writes_nothing_and_says_what_would_be(source: Ledger, target: Ledger) -> None:
    """The counts are those of the import that follows; damage and conflicts are found."""
    run, *_ = family(source)
    content = export(source)
    short = export(source, run)
    take(target, short)
    before = export(target)
    report = import_runs(target, io.BytesIO(content), check=True)
    assert export(target) == before
    assert report == take(target, content)
    assert (report.imported, report.already_there) == (5, 6)
    with pytest.raises((IntegrityFailureError, InvalidInputError)):
        import_runs(target, io.BytesIO(content[:-9]), check=True)


def test_progress_is_told(source: Ledger, target: Ledger) -> None:
    """Records on the way out, bytes on the way in, never less than before."""
    run = new_run_id()
    for version in range(0, 3000, 1000):
        source.append(run, notes(1000), version or NEW)
    told: list[int] = []
    out = io.BytesIO()
    export_runs(source, out, progress=told.append)
    assert told == [500, 1000, 1500, 2000, 2500, 3000]
    told.clear()
    out.seek(0)
    import_runs(target, out, progress=told.append)
    assert told == sorted(told)
    assert len(out.getvalue()) < told[-1] <= 2 * len(out.getvalue())


def test_a_sealed_run_with_a_secret_is_taken_as_it_is_or_not_at_all(
    target: Ledger, keys: Keys
) -> None:
    """Who demands a seal is not handed a run that no longer fits it; else it is told."""
    secret = CustomEvent(kind="a.note", data="AKIA" + "Q3EGRZC7T2LXV5NW")
    with Ledger.open(f"memory://{uuid4()}", redactor=None) as source:
        run = new_run_id()
        source.append(run, [note(), secret], NEW)
        file = export(source, seal=make_seal(source, NOW, keys.ours))

    with pytest.raises(IntegrityFailureError, match="holds a secret"):
        import_runs(target, io.BytesIO(file), public_key=keys.our_public)
    assert list(target.runs()) == []
    assert import_runs(target, io.BytesIO(file)).rechained == (str(run),)
    with Ledger.open(f"memory://{uuid4()}", redactor=None) as other:
        import_runs(other, io.BytesIO(file), public_key=keys.our_public)
        assert other.record(run, 2).event == secret

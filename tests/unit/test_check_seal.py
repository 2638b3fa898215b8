"""The independent script of the docs: it imports nothing of ours, and comes to the same."""

from __future__ import annotations

import ast
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.conformance.forging import cut, paid, remove, rewrite, small_book
from tests.conformance.harness import SQLiteVandal
from turnledger.ledger import ANY, Ledger, export_runs
from turnledger.ledger.integrity.seal import make_seal, read_seal, seal_lines
from turnledger.ledger.integrity.signing import new_key, read_signer

pytestmark = pytest.mark.process
SCRIPT = Path(__file__).parents[2] / "docs" / "check_seal.py"


class Archive:
    """A sealed ledger in a folder: seal.json, runs.db and, when it is checked, runs.jsonl."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = Ledger.open(folder / "runs.db")
        self.runs = small_book(self.ledger)
        self.vandal = SQLiteVandal(folder / "runs.db")
        (folder / "seal.pub").write_bytes(new_key(folder / "seal.key"))
        self.seal()

    def seal(self, *, signed: bool = True) -> None:
        signer = read_signer(self.folder / "seal.key") if signed else None
        lines = seal_lines(make_seal(self.ledger, 0, signer))
        (self.folder / "seal.json").write_bytes(b"".join(lines))

    def check(self, file: str, *more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", str(SCRIPT), "seal.json", file, *more]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True)

    def problems(self) -> str:
        """What the script says of the ledger and, the same, of its export."""
        self.ledger.rebuild_index()
        assert self.ledger.verify_all().ok
        with (self.folder / "runs.jsonl").open("wb") as out:
            export_runs(self.ledger, out)
        said = []
        for file in ("runs.db", "runs.jsonl"):
            done = self.check(file, "--public-key", "seal.pub")
            assert done.returncode == (1 if done.stderr else 0)
            assert ("unchanged" in done.stdout) == (done.returncode == 0)
            said.append(done.stderr)
        assert said[0] == said[1]
        return said[0]


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    archive = Archive(tmp_path)
    yield archive
    archive.vandal.close()
    archive.ledger.close()


def test_it_is_short_and_imports_nothing_of_ours() -> None:
    """Under 100 lines, the standard library and cryptography."""
    source = SCRIPT.read_text()
    assert len(source.splitlines()) < 100
    nodes = list(ast.walk(ast.parse(source)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    roots = {name.partition(".")[0] for name in names}
    assert roots <= {*sys.stdlib_module_names, "cryptography"}


def test_a_good_ledger_passes_and_one_that_grew(archive: Archive) -> None:
    """Forks of forks included."""
    assert archive.problems() == ""
    archive.ledger.append(archive.runs["nested"], paid(7), ANY)
    small_book(archive.ledger)
    assert archive.problems() == ""


def test_a_cut_tail_is_named(archive: Archive) -> None:
    """With the version where it ends."""
    cut(archive.vandal, archive.runs["other"], 1)
    assert f"run {archive.runs['other']}: cut at version 1" in archive.problems()


def test_a_removed_run_is_named(archive: Archive) -> None:
    """Together with its row in the index, nothing else tells."""
    remove(archive.vandal, archive.runs["other"])
    assert f"run {archive.runs['other']}: removed" in archive.problems()


def test_a_rewritten_ledger_is_named(archive: Archive) -> None:
    """All digests recomputed: they differ from those of the seal."""
    rewrite(archive.vandal, b'"cents":20,', b'"cents":21,')
    said = archive.problems()
    assert said.count("rewritten") == 2
    assert str(archive.runs["first"]) in said


def test_a_changed_record_is_named(archive: Archive) -> None:
    """Its digest left as it was: the chain is computed, not believed."""
    row = archive.vandal.at(archive.runs["first"], 2)
    archive.vandal.change(row.position, "data", row.data.replace(b'"cents":1,', b'"cents":2,'))
    done = archive.check("runs.db")
    assert done.returncode == 1
    assert done.stderr.strip() == (
        f"run {archive.runs['first']}, version 2: the record does not fit the one before"
    )


def test_a_view_in_the_place_of_the_events_is_refused(archive: Archive) -> None:
    """It could show the sealed records to the script and others to everybody else."""
    with closing(sqlite3.connect(archive.folder / "runs.db", isolation_level=None)) as db:
        db.execute("PRAGMA legacy_alter_table=ON")
        db.execute("ALTER TABLE events RENAME TO real")
        db.execute("CREATE VIEW events AS SELECT * FROM real")
    done = archive.check("runs.db")
    assert (done.returncode, "events is not a table" in done.stderr) == (1, True)


def test_an_edited_seal_is_refused(archive: Archive) -> None:
    """By its root, and by its signature where the root does not cover it."""
    file = archive.folder / "seal.json"
    good = file.read_text()
    for old, new, words in (
        ('"events": 10', '"events": 11', "InvalidSignature"),
        ('",2,"', '",1,"', "edited"),
    ):
        assert old in good
        file.write_text(good.replace(old, new))
        done = archive.check("runs.db")
        assert (done.returncode, words in done.stderr) == (1, True)


def test_it_wants_the_key_that_it_is_given(archive: Archive) -> None:
    """Neither an unsigned seal nor another's passes; without a key, it says what it is."""
    (archive.folder / "other.pub").write_bytes(new_key(archive.folder / "other.key"))
    assert archive.check("runs.db", "--public-key", "other.pub").returncode == 1
    assert "an unchecked key" in archive.check("runs.db").stdout
    archive.seal(signed=False)
    assert archive.check("runs.db", "--public-key", "seal.pub").returncode == 1
    done = archive.check("runs.db")
    assert (done.returncode, "NOT SIGNED" in done.stdout) == (0, True)


def test_an_export_brings_its_own_seal(archive: Archive) -> None:
    """One file is both the seal and the records, and neither can be changed unseen."""
    seal = read_seal((archive.folder / "seal.json").read_bytes())
    file = archive.folder / "sealed.jsonl"
    with file.open("wb") as out:
        export_runs(archive.ledger, out, seal=seal)

    def check() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", str(SCRIPT), str(file), str(file)]
        command += ["--public-key", str(archive.folder / "seal.pub")]
        return subprocess.run(command, capture_output=True, text=True)

    assert (check().returncode, check().stderr) == (0, "")
    good = file.read_bytes()
    for old, new, words in (
        (b'"cents":20,', b'"cents":21,', "does not fit"),
        (b'"events":10', b'"events":11', "InvalidSignature"),
    ):
        assert old in good
        file.write_bytes(good.replace(old, new))
        done = check()
        assert (done.returncode, words in done.stderr) == (1, True)

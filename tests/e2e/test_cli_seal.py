"""`seal` and `verify --seal`, on ledgers that forgers were at."""

from __future__ import annotations

import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

from tests.conformance.forging import cut, paid, remove, rewrite, small_book
from tests.conformance.harness import SQLiteVandal, Vandal
from tests.e2e.driving import InProcess, Outcome, Processes
from tests.postgres import new_database
from turnledger.ledger import ANY, Ledger


class Desk:
    """A ledger, a key, its public key and a seal, as files beside each other."""

    def __init__(self, cli: InProcess, folder: Path) -> None:
        self.cli = cli
        self.key, self.public, self.file = (
            folder / name for name in ("seal.key", "seal.pub", "seal.json")
        )
        with cli.ledger() as ledger:
            self.runs = small_book(ledger)
        self.public.write_text(cli("seal", "--new-key", self.key).out)
        self.seal("--key", self.key)

    def seal(self, *arguments: object) -> Outcome:
        done = self.cli("seal", *arguments)
        assert done.code == 0, done.err
        self.file.write_text(done.out)
        return done

    def verify(self, *more: object) -> Outcome:
        arguments = ("--seal", self.file, "--public-key", self.public, *more)
        return self.cli("verify", *arguments, "-o", "json")

    def forge(self, crime: Callable[[Vandal], None]) -> None:
        """Do it, and make the index agree, so that `verify` alone finds nothing."""
        with closing(SQLiteVandal(self.cli.db)) as vandal:
            crime(vandal)
        assert self.cli("rebuild-index").code == 0
        assert self.cli("verify").code == 0


@pytest.fixture
def desk(cli: InProcess, tmp_path: Path) -> Desk:
    return Desk(cli, tmp_path)


def test_a_sealed_ledger_verifies(desk: Desk) -> None:
    """The report says what the seal covers and whose it is, in JSON and for people."""
    done = desk.verify()
    assert (done.code, done.err) == (0, "")
    assert (done.json["ok"], done.json["problems"]) == (True, [])
    seal = done.json["seal"]
    assert (seal["signed"], seal["runs"], seal["events"], seal["position"]) == (True, 4, 10, 10)
    table = desk.cli("verify", "--seal", desk.file)
    assert table.code == 0
    assert f"signed with {seal['public_key']}" in table.out


def test_a_grown_ledger_verifies(desk: Desk) -> None:
    """Runs go on and new ones begin: the old seal still fits."""
    with desk.cli.ledger() as ledger:
        for run in desk.runs.values():
            ledger.append(run, paid(7), ANY)
        small_book(ledger)
    assert desk.verify().code == 0


@pytest.mark.parametrize(
    ("crime", "version", "word"),
    [
        (lambda vandal, run: cut(vandal, run, 1), 2, "cut"),
        (remove, 2, "removed"),
        (lambda vandal, run: rewrite(vandal, b'"cents":4000,', b'"cents":4,'), 2, "rewritten"),
    ],
)
def test_what_the_chain_cannot_show_the_seal_does(
    desk: Desk, crime: Callable[[Vandal, UUID], None], version: int, word: str
) -> None:
    """A cut tail, a removed run, a rewritten whole: exit code 5, and the run is named."""
    run = desk.runs["other"]
    desk.forge(lambda vandal: crime(vandal, run))
    done = desk.verify()
    (problem,) = done.json["problems"]
    assert (done.code, done.json["ok"]) == (5, False)
    assert (problem["run_id"], problem["version"]) == (str(run), version)
    assert problem["what"].endswith(word)


def test_all_problems_are_reported(desk: Desk) -> None:
    """Several at once, each on its line; that the position is lower is a note."""

    def crime(vandal: Vandal) -> None:
        rewrite(vandal, b'"cents":20,', b'"cents":21,')
        cut(vandal, desk.runs["other"], 1)
        remove(vandal, desk.runs["nested"])

    desk.forge(crime)
    table = desk.cli("verify", "--seal", desk.file)
    assert table.code == 5
    lines = [line for line in table.out.splitlines() if line.startswith("problem")]
    assert len(lines) == 4
    assert "note     the highest position is" in table.out


def test_an_edited_seal_is_refused(desk: Desk) -> None:
    """Exit code 5, before anything else is looked at."""
    desk.file.write_text(desk.file.read_text().replace('"events": 10', '"events": 11'))
    for done in (desk.verify(), desk.cli("verify", "--seal", desk.file)):
        assert (done.code, done.out) == (5, "")
        assert "signature" in done.err


def test_a_wrong_key_and_no_signature_are_refused(desk: Desk, tmp_path: Path) -> None:
    """Who names a key wants a seal that is signed with it."""
    other = tmp_path / "other.key"
    assert desk.cli("seal", "--new-key", other).code == 0
    desk.seal("--key", other)
    assert desk.cli("verify", "--seal", desk.file).code == 0
    done = desk.verify()
    assert (done.code, "another key" in done.err) == (5, True)
    desk.seal()
    done = desk.verify()
    assert (done.code, "not signed" in done.err) == (5, True)


def test_an_unsigned_seal_is_marked(desk: Desk) -> None:
    """In the file, when it is made and when it is checked; it works all the same."""
    done = desk.seal()
    assert "NOT SIGNED" in done.err
    assert (done.json["signed"], done.json["signature"]) == (False, None)
    assert "NOT SIGNED" in desk.cli("verify", "--seal", desk.file).out
    desk.forge(lambda vandal: remove(vandal, desk.runs["other"]))
    assert desk.cli("verify", "--seal", desk.file).code == 5


def test_a_damaged_ledger_is_not_sealed(desk: Desk) -> None:
    """Exit code 5, nothing on stdout."""
    with closing(SQLiteVandal(desk.cli.db)) as vandal:
        cut(vandal, desk.runs["other"], 1)
    done = desk.cli("seal", "--key", desk.key)
    assert (done.code, done.out) == (5, "")
    assert str(desk.runs["other"]) in done.err


def test_the_ledger_is_verified_before_it_is_sealed(desk: Desk) -> None:
    """Damage that the index does not show is found; who can't wait may seal it all the same."""
    with closing(SQLiteVandal(desk.cli.db)) as vandal:
        row = vandal.at(desk.runs["first"], 2)
        vandal.change(row.position, "data", row.data.replace(b'"cents":1,', b'"cents":2,'))
    done = desk.cli("seal", "--key", desk.key)
    assert (done.code, done.out) == (5, "")
    assert f"run {desk.runs['first']}, version 2" in done.err
    assert "Nothing is sealed" in done.err
    assert desk.cli("seal", "--key", desk.key, "--no-verify").code == 0


def test_a_copy_with_other_positions_fits(desk: Desk, tmp_path: Path) -> None:
    """A seal stays good where a ledger was moved to: lower positions are noted, exit code 0."""
    part = desk.cli("export", desk.runs["other"]).out
    copy = InProcess(tmp_path / "copy.db")
    assert copy("import", "-", stdin=desk.cli("export", "--all").out).code == 0
    with closing(SQLiteVandal(desk.cli.db)) as vandal:
        last = vandal.rows()[-1]
        vandal.change(last.position, "position", 1_000_000)
    desk.seal("--key", desk.key)
    done = copy("verify", "--seal", desk.file, "--public-key", desk.public, "-o", "json")
    assert (done.code, done.json["ok"], done.json["problems"]) == (0, True, [])
    assert "imported copy" in done.json["notes"][0]
    only = InProcess(tmp_path / "part.db")
    assert only("import", "-", stdin=part).code == 0
    assert only("verify", "--seal", desk.file).code == 5


def test_a_key_is_made_once(desk: Desk) -> None:
    """For its owner only, and what is there is not overwritten."""
    assert stat.S_IMODE(desk.key.stat().st_mode) == 0o600
    before = desk.key.read_bytes()
    done = desk.cli("seal", "--new-key", desk.key)
    assert (done.code, done.out) == (1, "")
    assert desk.key.read_bytes() == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("seal", "--key", "{key}", "--new-key", "{key}2"),
        ("seal", "--key", "{key}2"),
        ("verify", "--public-key", "{key}"),
        ("verify", "--seal", "{key}2"),
        ("verify", "01890a5d-ac96-774b-bcce-b302099a8057", "--seal", "{key}"),
    ],
)
def test_what_does_not_go_together_is_refused(desk: Desk, arguments: tuple[str, ...]) -> None:
    """Exit code 2, and no key is made."""
    done = desk.cli(*(argument.format(key=desk.key) for argument in arguments))
    assert (done.code, done.out) == (2, "")
    assert not Path(f"{desk.key}2").exists()


def test_as_processes_on_postgresql(processes: Processes, tmp_path: Path) -> None:
    """The same on a server: key, seal, growth, and a seal of another ledger."""
    url, other = new_database(), new_database()
    for each in (url, other):
        with Ledger.open(each) as ledger:
            small_book(ledger)
    key, public, file = (tmp_path / name for name in ("k", "k.pub", "s.json"))
    public.write_text(processes("seal", "--new-key", key).out)
    file.write_text(processes("seal", "--db", url, "--key", key).out)
    arguments = ("verify", "--seal", file, "--public-key", public, "--db")
    assert processes(*arguments, url).code == 0
    done = processes(*arguments, other)
    assert done.code == 5
    assert done.out.count("removed") >= 4

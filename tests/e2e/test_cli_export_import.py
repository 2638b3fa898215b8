"""`export` and `import`: whole runs from ledger to ledger, to the byte."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from tests.e2e.driving import PROGRAM, InProcess, Processes, hold, json_lines, note
from turnledger.ledger import (
    NEW,
    CustomEvent,
    InnerMessage,
    Ledger,
    MediaContent,
    MessageAppended,
    RunStarted,
    blob_name,
    new_run_id,
)

PICTURE = b"\x00\xffpixels"


@pytest.fixture
def run(cli: InProcess) -> UUID:
    """A run with a picture, forked twice over, and an unrelated run."""
    run = new_run_id()
    media = MediaContent(modality="image", blob=blob_name(PICTURE))
    message = InnerMessage(
        role="user", content="é\x9b\u202e", evaluation_id="e", sequence=0, parts=(media,)
    )
    with cli.ledger() as ledger:
        ledger.append(run, [RunStarted(), CustomEvent(kind="a.b", data=1.5)], NEW)
        ledger.append(run, [MessageAppended(message=message)], 2, blobs=[PICTURE])
        child = ledger.fork(run, 2)
        ledger.append(child, [CustomEvent(kind="a.b")], 3)
        grandchild = ledger.fork(child, 4, tags={"which": "grandchild"})
        ledger.append(grandchild, [MessageAppended(message=message)], 5)
        ledger.append(new_run_id(), [RunStarted()], NEW)
    return run


def exported(cli: InProcess, *arguments: object) -> str:
    done = cli("export", *arguments)
    assert done.code == 0, done.err
    return done.out


def test_export_import_export_is_the_same_to_the_byte(
    processes: Processes, cli: InProcess, run: UUID, tmp_path: Path
) -> None:
    """Piped from process to process into a new ledger, everything comes out the same."""
    copy = tmp_path / "copy.db"
    export = processes.start(PROGRAM, "export", "--all")
    done = subprocess.run(
        [PROGRAM, "import", "-", "--db", copy, "-o", "json"],
        stdin=export.stdout,
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert InProcess(copy)("export", "--all").out == exported(cli, "--all")
    assert InProcess(copy)("verify", "-o", "json").json == cli("verify", "-o", "json").json
    assert InProcess(copy)("runs", "-o", "json").json == cli("runs", "-o", "json").json


def test_a_fork_brings_its_ancestors(cli: InProcess, run: UUID, tmp_path: Path) -> None:
    """Exporting a fork of a fork is enough to verify it elsewhere, but takes nothing else."""
    grandchild = cli("runs", "--tag", "which=grandchild", "-o", "json").json[0]["run_id"]
    copy = InProcess(tmp_path / "copy.db")
    assert copy("import", "-", stdin=exported(cli, grandchild)).code == 0
    assert len(copy("runs", "-o", "json").json) == 3
    assert copy("verify").code == 0
    theirs = [(r["version"], r["digest"]) for r in cli("log", grandchild, "-o", "jsonl").lines]
    ours = [(r["version"], r["digest"]) for r in copy("log", grandchild, "-o", "jsonl").lines]
    assert ours == theirs
    assert exported(copy, grandchild) == exported(cli, grandchild)


def test_the_order_of_arguments_does_not_matter(cli: InProcess, run: UUID) -> None:
    """The same runs give the same file, however they were named."""
    runs = [r["run_id"] for r in cli("runs", "-o", "json").json]
    assert exported(cli, *runs) == exported(cli, *reversed(runs)) == exported(cli, "--all")


def test_importing_again_changes_nothing(cli: InProcess, run: UUID, tmp_path: Path) -> None:
    """A second import finds everything there, and so does one into the ledger it came from."""
    text = exported(cli, "--all")
    copy = InProcess(tmp_path / "copy.db")
    first = copy("import", "-", "-o", "json", stdin=text).json
    again = copy("import", "-", "-o", "json", stdin=text).json
    home = cli("import", "-", "-o", "json", stdin=text).json
    records = first["records"]
    assert (first["imported"], first["already_there"], first["blobs"]) == (records, 0, 1)
    assert (again["imported"], again["already_there"], again["blobs"]) == (0, records, 0)
    assert home == again
    assert exported(copy, "--all") == text


def test_a_longer_file_extends_and_a_shorter_one_leaves(
    cli: InProcess, run: UUID, tmp_path: Path
) -> None:
    """What came since the last import is added; an old file takes nothing away."""
    old = exported(cli, run)
    cli("append", run, "--expect", "3", stdin=json_lines(note(1), note(2)))
    new = exported(cli, run)
    copy = InProcess(tmp_path / "copy.db")
    copy("import", "-", stdin=old)
    assert copy("import", "-", "-o", "json", stdin=new).json["imported"] == 2
    assert copy("import", "-", "-o", "json", stdin=old).json["imported"] == 0
    assert exported(copy, run) == new


def test_another_history_is_a_conflict(cli: InProcess, run: UUID, tmp_path: Path) -> None:
    """The same run with other events exits with 5, names both digests, and writes nothing."""
    copy = InProcess(tmp_path / "copy.db")
    copy("import", "-", stdin=exported(cli, run))
    ours = copy("append", run, "--expect", 3, "-o", "json", stdin=json_lines(note("ours"))).json
    theirs = cli("append", run, "--expect", 3, "-o", "json", stdin=json_lines(note("theirs"))).json
    before = exported(copy, "--all")
    done = copy("import", "-", stdin=exported(cli, "--all"))
    assert (done.code, done.out) == (5, "")
    for word in ("line ", str(run), "version 4", ours["digest"], theirs["digest"]):
        assert word in done.err
    assert exported(copy, "--all") == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"data":1.5', '"data":2.5'),
        lambda text: text.rsplit("\n", 2)[0] + "\n",
        lambda text: text[:-30],
        lambda text: "",
        lambda text: "hello\n",
        lambda text: text.replace('"content":"', '"content":"AAAA', 1),
    ],
)
def test_a_damaged_file_is_refused(
    cli: InProcess, run: UUID, tmp_path: Path, damage: object
) -> None:
    """A file that is not as it was exported exits with 5, names the line, writes nothing."""
    text = exported(cli, "--all")
    damaged = damage(text)  # type: ignore[operator]
    assert damaged != text
    copy = InProcess(tmp_path / "copy.db")
    done = copy("import", "-", stdin=damaged)
    assert (done.code, done.out) == (5, "")
    assert "line " in done.err
    assert copy("runs", "-o", "json").json == []


def test_a_claimed_run_is_not_extended(processes: Processes, run: UUID, tmp_path: Path) -> None:
    """Where a living worker holds the run, an import that would extend it exits with 7."""
    other = InProcess(tmp_path / "other.db")
    epoch = hold(processes, run)
    cli = InProcess(processes.db)
    other("import", "-", stdin=exported(cli, run))
    other("append", run, "--expect", "any", stdin=json_lines(note()))
    done = cli("import", "-", stdin=exported(other, run))
    assert (epoch, done.code) == (1, 7)
    assert "holder" in done.err
    with Ledger.open(processes.db) as ledger:
        assert ledger.head(run) == 4


def test_output_file_is_whole_or_not_there(cli: InProcess, run: UUID, tmp_path: Path) -> None:
    """`-O` writes the same bytes as stdout gets, and leaves nothing behind when it fails."""
    folder = tmp_path / "exports"
    folder.mkdir()
    path = folder / "run.jsonl"
    assert cli("export", run, "-O", path).out == ""
    assert path.read_text() == exported(cli, run)
    assert cli("export", new_run_id(), "-O", folder / "other.jsonl").code == 3
    assert cli("export", run, "-O", tmp_path / "nowhere" / "x").code == 1
    assert list(folder.iterdir()) == [path]


@pytest.mark.parametrize("arguments", [("export",), ("import",), ("import", "/nowhere")])
def test_usage_errors_exit_2(cli: InProcess, run: UUID, arguments: tuple[str, ...]) -> None:
    """Exporting nothing and importing nothing is a usage error."""
    assert cli(*arguments).code == 2


def test_a_pipe_or_a_device_is_written_to_and_stays(
    cli: InProcess, run: UUID, tmp_path: Path
) -> None:
    """Only files are replaced: who exports to /dev/null as root still has one afterwards."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    whole = exported(cli, run).encode()
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_bytes)
        assert cli("export", run, "-O", pipe).code == 0
        assert read.result(30) == whole
    assert pipe.is_fifo()
    assert cli("backup", "--force", pipe).code == 1
    assert cli("export", run, "--test", pipe, "--app", "a:b", "--force").code != 0
    assert pipe.is_fifo()
    link.symlink_to("file")
    assert cli("export", run, "-O", link).code == 0
    assert (link.is_symlink(), (tmp_path / "file").read_bytes()) == (True, whole)


def test_runs_and_all_exclude_each_other(cli: InProcess, run: UUID) -> None:
    """Either runs are named or all are meant."""
    assert cli("export", run, "--all").code == 2


# --- with a seal -----------------------------------------------------------------------------


@pytest.fixture
def sealed(cli: InProcess, run: UUID, tmp_path: Path) -> Path:
    """A folder with a key, its public key, a seal and an export that carries it."""
    (tmp_path / "seal.pub").write_text(cli("seal", "--new-key", tmp_path / "seal.key").out)
    (tmp_path / "seal.json").write_text(cli("seal", "--key", tmp_path / "seal.key").out)
    done = cli("export", "--all", "--seal", tmp_path / "seal.json", "-O", tmp_path / "runs.jsonl")
    assert (done.code, "signed with" in done.err) == (0, True)
    return tmp_path


def test_a_seal_is_carried_and_kept(cli: InProcess, sealed: Path) -> None:
    """The receiver has the seal's file to the byte, and the copy fits it."""
    copy = InProcess(sealed / "copy.db")
    kept = sealed / "kept.json"
    arguments = ("--public-key", sealed / "seal.pub", "--seal-out", kept)
    done = copy("import", sealed / "runs.jsonl", *arguments, "-o", "json")
    assert done.code == 0, done.err
    assert kept.read_bytes() == (sealed / "seal.json").read_bytes()
    assert (done.json["sealed_runs"], done.json["seal"]["signed"]) == (4, True)
    assert done.json["missing_runs"] == 0
    assert copy("verify", "--seal", kept, "--public-key", sealed / "seal.pub").code == 0
    again = copy("export", "--all", "--seal", kept).out
    assert again == (sealed / "runs.jsonl").read_text()
    table = copy("import", sealed / "runs.jsonl")
    assert "unsealed runs  0" in table.out
    assert "missing runs   0" in table.out
    assert "signed with" in table.out


def test_a_seal_that_is_there_is_kept(cli: InProcess, sealed: Path) -> None:
    """--seal-out overwrites nothing, and wants a seal in the export."""
    copy = InProcess(sealed / "copy.db")
    done = copy("import", sealed / "runs.jsonl", "--seal-out", sealed / "seal.json")
    assert (done.code, done.out) == (2, "")
    plain = exported(cli, "--all")
    done = copy("import", "-", "--seal-out", sealed / "new.json", stdin=plain)
    assert (done.code, "carries no seal" in done.err) == (5, True)
    assert not (sealed / "new.json").exists()
    assert copy("runs", "-o", "json").json == []


def test_a_seal_that_does_not_fit_is_refused(cli: InProcess, run: UUID, sealed: Path) -> None:
    """On the way out for a ledger that lost something, on the way in for such a file."""
    other = InProcess(sealed / "other.db")
    other("append", run, "--expect", "new", stdin=json_lines(note(1), note(2), note(3)))
    for arguments in (("--all",), (run,)):
        done = other("export", *arguments, "--seal", sealed / "seal.json")
        assert (done.code, done.out, "rewritten" in done.err) == (5, "", True)
    short = exported(InProcess(sealed / "other.db"), run).splitlines(keepends=True)
    line = (sealed / "runs.jsonl").read_text().splitlines(keepends=True)[1]
    header = short[0].replace('"turnledger":1', '"turnledger":2')
    copy = InProcess(sealed / "copy.db")
    done = copy("import", "-", stdin="".join([header, line, *short[1:]]))
    assert (done.code, "line 5" in done.err, "rewritten" in done.err) == (5, True, True)
    assert copy("runs", "-o", "json").json == []


def test_another_key_is_refused(cli: InProcess, sealed: Path) -> None:
    """Who names a key gets nothing that is not signed with it."""
    (sealed / "other.pub").write_text(cli("seal", "--new-key", sealed / "other.key").out)
    copy = InProcess(sealed / "copy.db")
    done = copy("import", sealed / "runs.jsonl", "--public-key", sealed / "other.pub")
    assert (done.code, "another key" in done.err) == (5, True)
    assert copy("runs", "-o", "json").json == []


def test_a_check_writes_nothing(cli: InProcess, run: UUID, tmp_path: Path) -> None:
    """It says what an import would do, with the same exit codes, and makes no ledger."""
    text = exported(cli, "--all")
    copy = InProcess(tmp_path / "copy.db")
    assert copy("import", "--check", "-", stdin=text).code == 1
    assert not copy.db.exists()
    alone = copy("import", "--check", "-", "--db", "memory://", "-o", "json", stdin=text)
    assert (alone.code, "nothing was written" in alone.err) == (0, True)
    copy("import", "-", stdin=exported(cli, run))
    checked = copy("import", "--check", "-", "-o", "json", stdin=text).json
    assert len(copy("runs", "-o", "json").json) == 1
    assert copy("import", "-", "-o", "json", stdin=text).json == checked
    assert copy("import", "--check", "-", stdin=text[:-30]).code == 5


def test_what_is_for_exports_does_not_go_with_transcripts(cli: InProcess, run: UUID) -> None:
    """A seal, a key and a check belong to whole runs."""
    assert cli("import", "-", "--format", "openai-chat", "--check", stdin="[]").code == 2
    assert cli("export", run, "--format", "openai-chat", "--seal", cli.db).code == 2


@pytest.mark.parametrize("command", ["export --all", "import {file}", "backup {file}.db", "seal"])
def test_a_person_sees_how_far_it_is(
    cli: InProcess, run: UUID, tmp_path: Path, command: str
) -> None:
    """On a terminal there is a bar on stderr, and none of it is in the data."""
    file = tmp_path / "runs.jsonl"
    file.write_text(exported(cli, "--all"))
    master, slave = os.openpty()
    with file.open("rb"):
        done = subprocess.Popen(
            [PROGRAM, *command.format(file=file).split(), "--db", cli.db],
            stdout=subprocess.PIPE,
            stderr=slave,
            env={**os.environ, "TERM": "xterm"},
        )
    os.close(slave)
    shown = bytearray()
    with suppress(OSError):  # how a terminal reports the end
        while chunk := os.read(master, 4096):
            shown += chunk
    os.close(master)
    out, _ = done.communicate(timeout=60)
    assert done.returncode == 0, shown
    assert b"ing" in shown.split(b"\n")[0]
    assert b"\x1b[" in shown
    assert b"\x1b" not in out


def test_a_full_disk_is_an_error(cli: InProcess, run: UUID) -> None:
    """Nothing pretends that the export was written."""
    with open("/dev/full", "wb", buffering=0) as full:
        done = subprocess.run(
            [PROGRAM, "export", "--all", "--db", cli.db], stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 1
    assert b"No space left" in done.stderr

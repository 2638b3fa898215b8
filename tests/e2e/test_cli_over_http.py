"""The command line on a ledger behind a server: its token, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.driving import InProcess
from tests.servers.ledger_server import LedgerServer
from turnledger.ledger import NEW, InvalidInputError, Ledger, RunStarted, back_up, new_run_id

RUN = new_run_id()


@pytest.fixture
def server() -> Iterator[LedgerServer]:
    """A server whose ledger has one run."""
    with Ledger.open("memory://") as ledger:
        ledger.append(RUN, RunStarted(), expected_version=NEW)
        with LedgerServer(ledger) as served:
            yield served


@pytest.fixture
def command(server: LedgerServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InProcess:
    """The command with `--db` of the server, and no token."""
    monkeypatch.delenv("TURNLEDGER_TOKEN", raising=False)
    runner = InProcess(tmp_path)
    monkeypatch.setattr(runner, "db", server.url)
    return runner


def token_file(server: LedgerServer, folder: Path, role: str) -> Path:
    file = folder / f"{role}.txt"
    file.write_text(server.token(role) + "\n")  # type: ignore[arg-type]
    return file


def test_a_token_comes_from_the_environment_or_a_file(
    server: LedgerServer, command: InProcess, tmp_path: Path
) -> None:
    """`--token-file` works before and after the command, and wins over TURNLEDGER_TOKEN."""
    file = token_file(server, tmp_path, "reader")
    assert str(RUN) in command("runs", TURNLEDGER_TOKEN=server.token("reader")).out
    assert str(RUN) in command("runs", "--token-file", file, TURNLEDGER_TOKEN="wrong").out
    assert str(RUN) in command("--token-file", file, "runs").out


def test_without_a_token_the_error_says_where_to_get_one(command: InProcess) -> None:
    """What is missing, the command that makes it, and where to give it."""
    done = command("runs")
    assert done.code == 1
    assert "The request has no token. `turnledger token new --role writer`" in done.err
    assert "TURNLEDGER_TOKEN, --token-file FILE" in done.err


@pytest.mark.parametrize("token", ["hunter2\nsecret", "hünter2", "hunter2 secret", "\x00"])
def test_what_is_not_a_token_is_refused_and_not_shown(
    command: InProcess, tmp_path: Path, token: str
) -> None:
    """A wrong file or a pasted text ends in a message without it, not in a header."""
    (tmp_path / "token").write_text(token)
    done = command("runs", "--token-file", tmp_path / "token")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("Error: Invalid access token: expected the one line")
    assert "nter2" not in done.err


def test_a_token_file_is_read_up_to_4096_characters(
    server: LedgerServer, command: InProcess, tmp_path: Path
) -> None:
    """A wrong file, however large, is neither read whole nor sent to the server."""
    file = tmp_path / "token"
    token = server.token("reader")
    file.write_text(token.ljust(4096) + "\x00 what follows is not read")
    assert str(RUN) in command("runs", "--token-file", file).out
    file.write_text(token.ljust(4095) + "\x00")
    assert command("runs", "--token-file", file).code == 1


def test_a_token_file_may_be_a_pipe_but_not_a_device(
    server: LedgerServer, command: InProcess, tmp_path: Path
) -> None:
    """`--token-file <(print-token)` works; a device without an end ends in a message."""
    read, write = os.pipe()
    os.write(write, server.token("reader").encode())
    os.close(write)
    assert str(RUN) in command("runs", "--token-file", f"/dev/fd/{read}").out
    os.close(read)
    done = command("runs", "--token-file", "/dev/zero")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("Error: Invalid access token: expected the one line")
    done = command("runs", "--token-file", tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "is a directory" in done.err


def test_an_admin_imports_over_http(
    server: LedgerServer, command: InProcess, tmp_path: Path
) -> None:
    """The server imports the file; a writer's token does not suffice."""
    other = new_run_id()
    with Ledger.open(tmp_path / "other.db") as ledger:
        ledger.append(other, RunStarted(), expected_version=NEW)
    file = tmp_path / "runs.jsonl"
    file.write_text(InProcess(tmp_path / "other.db")("export", "--all").out)
    refused = command("import", file, "--token-file", token_file(server, tmp_path, "writer"))
    assert refused.code == 1
    assert "this needs admin. Use a token with a higher role." in refused.err
    done = command(
        "import", file, "-o", "json", "--token-file", token_file(server, tmp_path, "admin")
    )
    assert (done.code, done.json["imported"]) == (0, 1)
    assert server.ledger.head(other) == 1


@pytest.mark.parametrize(
    "arguments", [("serve", "--port", "0"), ("backup", "copy.db"), ("token", "list"), ("seal",)]
)
def test_what_needs_the_store_says_so(
    server: LedgerServer, command: InProcess, arguments: tuple[str, ...]
) -> None:
    """Over a URL it is refused, with the way to do it, and nothing is begun."""
    done = command(*arguments, TURNLEDGER_TOKEN=server.token())
    assert (done.code, done.out) == (1, "")
    assert f"needs the ledger's own store, and {server.url} is a server." in done.err


def test_a_backup_through_a_client_is_refused(server: LedgerServer, tmp_path: Path) -> None:
    """In Python too, before a file is made."""
    from turnledger.adapters.http import LedgerClient

    with (
        LedgerClient(server.url, token=server.token()) as ledger,
        pytest.raises(InvalidInputError, match="A backup needs the ledger's own store"),
    ):
        back_up(ledger, tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == []

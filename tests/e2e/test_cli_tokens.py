"""`token`: access tokens are printed once, listed without their secrets, and revoked."""

from __future__ import annotations

import re

import pytest

from tests.e2e.driving import InProcess, Processes
from turnledger.ledger import Ledger, TokenRevokedError, Tokens

TEXT = re.compile(r"tl_([0-9a-f]{12})_([0-9a-f]{64})")


@pytest.fixture
def cli(cli: InProcess) -> InProcess:
    """The command, with an empty ledger."""
    cli.ledger().close()
    return cli


def made(cli: InProcess, *options: str) -> tuple[str, str]:
    """A new token's text and id."""
    text = cli("token", "new", "--role", "reader", *options).out.strip()
    found = TEXT.fullmatch(text)
    assert found is not None
    return text, found[1]


@pytest.mark.parametrize("role", ["reader", "writer", "admin"])
def test_new_prints_the_token_alone_on_stdout(cli: InProcess, role: str) -> None:
    """It opens the ledger in its role; what is said about it is on stderr, without the secret."""
    done = cli("token", "new", "--role", role, "--name", "build server")
    assert done.code == 0
    found = TEXT.fullmatch(done.out.removesuffix("\n"))
    assert found is not None
    assert found[2] not in done.err
    assert f"{found[1]} ({role}) does not expire" in done.err
    with cli.ledger() as ledger:
        token = Tokens(ledger).check(found[0])
    assert (token.role, token.name, token.expires_at) == (role, "build server", None)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("30d", 2_592_000), ("12h", 43_200), ("45m", 2_700), ("1m", 60), ("99999d", 8_639_913_600)],
)
def test_expires_takes_days_hours_and_minutes(cli: InProcess, given: str, seconds: int) -> None:
    """Counted from the moment in which it is made."""
    made(cli, "--expires", given)
    with cli.ledger() as ledger:
        (token,) = Tokens(ledger).list()
    assert token.expires_at is not None
    assert (token.expires_at - token.created_at).total_seconds() == seconds


@pytest.mark.parametrize(
    "given", ["", "30", "d", "0d", "-1d", "30s", "1.5h", "30 d", "1d12h", "100000d", "٣d", "30D"]
)
def test_another_time_is_a_usage_error(cli: InProcess, given: str) -> None:
    """It names what is expected, and no token is made."""
    done = cli("token", "new", "--role", "reader", f"--expires={given}")
    assert (done.code, done.out) == (2, "")
    assert "like 30d, 12h or 45m" in done.err
    assert cli("token", "list", "-o", "json").json == []


def test_a_role_is_needed_and_one_of_three(cli: InProcess) -> None:
    """The error lists them."""
    for options in ((), ("--role", "owner")):
        done = cli("token", "new", *options)
        assert (done.code, done.out) == (2, "")
        assert all(role in done.err for role in ("reader", "writer", "admin"))
        assert "\\t" not in done.err


def test_list_has_all_but_the_secrets(cli: InProcess) -> None:
    """Those that were revoked too, oldest first, as a table and as JSON."""
    assert cli("token", "list").err == "There are no access tokens.\n"
    texts = [made(cli, "--expires", "1d", "--name", "first")[0], made(cli)[0]]
    ids = [text.split("_")[1] for text in texts]
    cli("token", "revoke", ids[1])
    listed = cli("token", "list", "-o", "json").json
    assert [one["id"] for one in listed] == ids
    assert [one["state"] for one in listed] == ["valid", "revoked"]
    assert [one["name"] for one in listed] == ["first", ""]
    assert set(listed[0]) == {
        *("id", "name", "role", "state"),
        *("created_at", "expires_at", "revoked_at"),
    }
    heading, *rows = cli("token", "list").out.splitlines()
    assert heading.split() == ["id", "role", "name", "state", "created", "expires"]
    assert [row.split()[0] for row in rows] == ids
    for form in ("table", "json", "jsonl"):
        shown = cli("token", "list", "-o", form).out
        assert not any(text.split("_")[2] in shown for text in texts)


def test_new_as_json_has_the_token_and_its_row(cli: InProcess) -> None:
    """For programs: what `list` has of it, and the text."""
    value = cli("token", "new", "--role", "admin", "-o", "json").json
    assert TEXT.fullmatch(value.pop("token"))
    assert cli("token", "list", "-o", "json").json == [value]


def test_a_revoked_token_is_refused(cli: InProcess) -> None:
    """Revoking again is no error; an unknown id is one, with exit code 3."""
    text, token_id = made(cli)
    assert cli("token", "revoke", token_id).out == f"Access token {token_id} is revoked.\n"
    first = cli("token", "revoke", token_id, "-o", "json").json
    assert first["state"] == "revoked"
    with cli.ledger() as ledger, pytest.raises(TokenRevokedError):
        Tokens(ledger).check(text)
    for unknown in ("0" * 12, "zz"):
        done = cli("token", "revoke", unknown)
        assert (done.code, done.out) == (3, "")
        assert f"no access token '{unknown}'" in done.err


def test_the_text_in_place_of_the_id_is_not_repeated(cli: InProcess) -> None:
    """The message may end in a log."""
    text, _ = made(cli)
    done = cli("token", "revoke", text)
    assert done.code == 3
    assert text.split("_")[2] not in done.err


def test_no_ledger_is_made_for_a_token(cli: InProcess) -> None:
    """A misspelt --db would give a token that opens nothing."""
    misspelt = cli.db.with_name("nowhere.db")
    done = cli("token", "new", "--role", "reader", "--db", misspelt)
    assert (done.code, done.out) == (1, "")
    assert "There is no ledger" in done.err
    assert not misspelt.exists()


def test_the_installed_command_prints_a_token(processes: Processes) -> None:
    """In a pipe, stdout is the token and a line break."""
    Ledger.open(processes.db).close()
    done = processes("token", "new", "--role", "writer")
    assert TEXT.fullmatch(done.out.removesuffix("\n"))
    with Ledger.open(processes.db) as ledger:
        assert Tokens(ledger).check(done.out.strip()).role == "writer"

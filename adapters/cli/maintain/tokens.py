"""Command group `token`: access tokens for the HTTP API, made, listed and revoked."""

from __future__ import annotations

from datetime import datetime, timedelta

import click
import msgspec

from turnledger.adapters.cli.shared.command import LazyGroup, command, open_ledger, printer
from turnledger.adapters.cli.shared.output import say
from turnledger.adapters.cli.shared.parameters import as_duration
from turnledger.ledger import Token, Tokens
from turnledger.ledger.clock import moment_text, to_micros
from turnledger.ledger.tokens import ROLES, Role

# Command name: "module:function" in the package of the command line, and the short help.
COMMANDS = {
    "list": ("maintain.tokens:list_", "List the access tokens, oldest first."),
    "new": ("maintain.tokens:new", "Make an access token and print it, this once."),
    "revoke": ("maintain.tokens:revoke", "Revoke an access token, from now on."),
}


@click.group(cls=LazyGroup, sections={"Commands": COMMANDS})
def token() -> None:
    """Make, list and revoke access tokens for the HTTP API.

    A token has a role: a reader reads, a writer also appends, an admin does everything. The
    ledger has a hash of it, in a table that is in no export and no backup.
    """


class TokenView(msgspec.Struct, frozen=True):
    """An access token as JSON, without its secret."""

    id: str
    name: str
    role: Role
    state: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class NewTokenView(TokenView, frozen=True):
    """An access token that was just made, as JSON."""

    token: str


@command(
    example="""\
turnledger token new --role reader
turnledger token new --role writer --expires 30d --name builder > token.txt""",
)
@click.option("--role", type=click.Choice(ROLES), required=True, help="What the token allows.")
@click.option(
    "--expires",
    type=as_duration,
    metavar="TIME",
    help="How long it is valid: 30d, 12h, 45m. Default: until it is revoked.",
)
@click.option("--name", default="", metavar="TEXT", help="A label for people.")
def new(role: Role, expires: timedelta | None, name: str) -> None:
    """Make an access token and print it, this once.

    Stdout has the token alone. It can't be shown again: the ledger has only a hash of it. Keep it
    like a password; a client takes it from TURNLEDGER_TOKEN or --token-file. Tokens are made
    beside the ledger's store, not over HTTP.
    """
    out = printer()
    with open_ledger() as ledger:
        made = Tokens(ledger).new(role, name=name, expires_in=expires)
        view = _view(made.token, ledger.clock.micros())
    shown = NewTokenView(**msgspec.structs.asdict(view), token=made.text)
    out.one(shown, lambda: out.line(made.text))
    until = f"expires at {view.expires_at}" if view.expires_at else "does not expire"
    say(
        f"Access token {view.id} ({role}) {until}. It is not shown again. To revoke it: "
        f"turnledger token revoke {view.id}"
    )


@command("list", example="turnledger token list -o json")
def list_() -> None:
    """List the access tokens, oldest first.

    Also those that expired or were revoked. The tokens themselves are not shown: the ledger does
    not have them.
    """
    out = printer()
    with open_ledger() as ledger:
        now = ledger.clock.micros()
        out.listing(
            [_view(one, now) for one in Tokens(ledger).list()],
            ("id", "role", "name", "state", "created", "expires"),
            lambda one: (
                one.id,
                one.role,
                one.name,
                one.state,
                one.created_at,
                one.expires_at or "",
            ),
            nothing="There are no access tokens.",
        )


@command(
    example="""\
turnledger token list
turnledger token revoke 3f9c02d1a7b4""",
)
@click.argument("token_id", metavar="ID")
def revoke(token_id: str) -> None:
    """Revoke an access token, from now on.

    ID is the one that `turnledger token list` shows. A token that was revoked before stays so.
    """
    out = printer()
    with open_ledger() as ledger:
        view = _view(Tokens(ledger).revoke(token_id), ledger.clock.micros())
    out.one(view, lambda: out.line(f"Access token {view.id} is revoked."))


def _view(found: Token, now: int) -> TokenView:
    ended = found.expires_at is not None and to_micros(found.expires_at) <= now
    state = "revoked" if found.revoked_at else "expired" if ended else "valid"
    times = (_text(one) for one in (found.created_at, found.expires_at, found.revoked_at))
    created_at, expires_at, revoked_at = times
    assert created_at is not None
    return TokenView(found.id, found.name, found.role, state, created_at, expires_at, revoked_at)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment_text(to_micros(moment))

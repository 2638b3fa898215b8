"""Secrets in what wrapped clients record: none is stored, and a resume goes on all the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.servers.serving import Answer, Asked, Call, StrictServer
from tests.unit.adapters.clients.stories import Stopped
from tests.unit.adapters.clients.wrapped import WAYS, Way, Wrapped, cells, wrapped
from turnledger.adapters.clients.stream_redaction import redacted_stream
from turnledger.adapters.testing.no_network import no_network
from turnledger.ledger import Ledger, ModelReplied
from turnledger.ledger.redaction import STANDARD, Redactor
from turnledger.runtime.steps import run

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"[:36]


@pytest.mark.process
@pytest.mark.parametrize("way", cells(WAYS))
def test_a_secret_that_is_said_is_not_stored(way: Way) -> None:
    """Not in a request, not in a reply, and not in the pieces of a stream."""
    assert STANDARD.text(SECRET) != SECRET

    def script(asked: Asked) -> Answer:
        return Answer(f"You said {SECRET}." if asked.turn == 1 else "fine")

    with wrapped(way, script) as there:

        async def asked(client: Any, *, stops: bool = False) -> str:
            async with run("x", ledger=there.ledger):
                said = [("user", f"My token is {SECRET}.")]
                said += [("assistant", await way.ask(client, said)), ("user", "Again?")]
                if stops:
                    raise Stopped
                return await way.ask(client, said)

        async def story() -> None:
            client = there.client()
            with pytest.raises(Stopped):
                await asked(client, stops=True)
            assert await asked(client) == "fine"
            with no_network():
                assert await asked(client) == "fine"

        there.run(story)
        assert len(there.server.asked) == 2
        stored = there.text("x")
        assert SECRET not in stored
        assert "github" in stored  # the marker says what it was
        for start in range(0, len(SECRET) - 8, 4):
            assert SECRET[start : start + 8] not in stored


@pytest.mark.parametrize(
    "way", [way for way in WAYS if way.stream and way.colour == "sync"], ids=str
)
def test_a_stream_without_secrets_is_recorded_byte_by_byte(way: Way) -> None:
    """And one with a secret in a call's arguments is the same stream without it."""
    path = "/v1beta/models/m:streamGenerateContent"
    asked = Asked(1, 1, {"model": "m", "contents": []}, path, True)
    plain = b"".join(way.wire.stream(asked, Answer("Nothing here.", (Call("f", '{"n": 1}'),))))
    assert redacted_stream(plain.decode(), STANDARD.text) == plain.decode()
    secret = b"".join(
        way.wire.stream(asked, Answer("Here.", (Call("f", f'{{"token": "{SECRET}"}}'),)))
    )
    safe = redacted_stream(secret.decode(), STANDARD.text)
    assert "[redacted: " in safe
    assert SECRET[4:12] not in safe


@pytest.mark.process
@pytest.mark.parametrize("way", cells(WAYS))
def test_a_field_that_is_never_stored_is_not_stored_of_a_reply(way: Way) -> None:
    """A redactor of one's own: the record takes what it leaves, and a resume gets that."""
    call = Call("log_in", '{"password": "correct horse"}')
    redactor = Redactor(fields=["password"])
    with (
        StrictServer(way.wire, lambda asked: Answer("Hm.", (call,))) as server,
        Ledger.open("memory://", redactor=redactor) as ledger,
    ):
        there = Wrapped(way, server, ledger)

        async def story() -> None:
            client = there.client()
            for _ in range(2):
                async with run("x", ledger=ledger):
                    await way.ask(client, [("user", "Log in.")])

        there.run(story)
        assert len(server.asked) == 1
        assert "correct horse" not in there.text("x")
        assert there.events("x", ModelReplied)[0].message_id is not None

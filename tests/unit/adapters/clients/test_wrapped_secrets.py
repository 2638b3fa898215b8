"""Secrets in what wrapped clients record: none is stored, and a resume goes on all the same."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest

from tests.servers.serving import Answer, Asked, Call, CutBody, StrictServer
from tests.unit.adapters.clients.stories import Stopped
from tests.unit.adapters.clients.wrapped import WAYS, Way, Wrapped, cells, wrapped
from turnledger.adapters.clients.stream_redaction import redacted_stream
from turnledger.ledger import Ledger, ModelReplied
from turnledger.ledger.redaction import STANDARD, Redactor
from turnledger.runtime.steps import UnrecordableResultError, run

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"[:36]


WARNS = Redactor(on_redacted="warn")


@pytest.mark.process
@pytest.mark.parametrize("redactor", [STANDARD, WARNS], ids=["refuse", "warn"])
@pytest.mark.parametrize("way", cells(WAYS))
def test_a_secret_that_is_said_is_not_stored(
    way: Way, redactor: Redactor, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither of a request nor of a reply, and the live program gets the reply that a resume gets.

    By default that is an error, with `on_redacted="warn"` the reply with a mark, and a warning.
    The pieces of a stream are there before it is recorded.
    """
    said, marked = f"You said {SECRET}.", "You said [redacted: github-token]."
    is_refused = redactor is STANDARD

    with (
        StrictServer(way.wire, lambda asked: Answer(said)) as server,
        Ledger.open("memory://", redactor=redactor) as ledger,
    ):
        there = Wrapped(way, server, ledger)

        async def asked(client: Any, *, stops: bool) -> None:
            async with run("x", ledger=ledger):
                answer = await way.ask(client, [("user", f"My token is {SECRET}.")])
                assert answer == (said if way.stream and stops else marked)
                if stops:
                    raise Stopped

        async def story() -> None:
            client = there.client()
            for stops in (True, False, False):
                if is_refused:
                    with pytest.raises(UnrecordableResultError, match="github-token"):
                        await asked(client, stops=stops)
                elif stops:
                    with pytest.raises(Stopped):
                        await asked(client, stops=stops)
                else:
                    await asked(client, stops=stops)

        there.run(story)
        assert len(server.asked) == 1
        stored = there.text("x")
        warnings = [one for one in caplog.records if one.name == "turnledger.redaction"]
        assert len(warnings) == (0 if is_refused else 1)
        assert all("ModelReplied.value.text (github-token)" in w.getMessage() for w in warnings)
        assert "github" in stored  # the marker says what it was
        for start in range(0, len(SECRET) - 8, 4):
            assert SECRET[start : start + 8] not in stored


@pytest.mark.process
@pytest.mark.parametrize("way", [way for way in WAYS if way.stream], ids=str)
def test_a_secret_in_a_stream_that_was_left_is_refused(way: Way) -> None:
    """By default: its reader went on with the pieces that it had, and a resume has none."""
    text = f"You said {SECRET}. And much more, word by word."
    with (
        StrictServer(way.wire, lambda asked: Answer(text)) as server,
        Ledger.open("memory://") as ledger,
    ):
        there = Wrapped(way, server, ledger)

        async def asked(client: Any) -> None:
            async with run("x", ledger=ledger) as live:
                had = ""
                async with aclosing(way.pieces(client, [("user", "Go.")])) as pieces:
                    async for piece in pieces:
                        had += piece
                        if SECRET in had:
                            break
                live.step("next", lambda: 1)

        async def story() -> None:
            client = there.client()
            for _ in range(2):
                with pytest.raises(UnrecordableResultError, match="github-token"):
                    await asked(client)

        there.run(story)
        assert SECRET not in there.text("x")


@pytest.mark.process
@pytest.mark.parametrize("way", cells([way for way in WAYS if way.stream]))
def test_a_secret_in_a_stream_that_broke_off_is_logged(
    way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    """The call has failed all the same; a resume gets its pieces without the secret."""
    answer = CutBody(Answer(f"You said {SECRET}. {'And more, word by word. ' * 20}"))
    with wrapped(way, lambda asked: answer) as there:

        async def asked(client: Any) -> str:
            text = ""
            async with run("x", ledger=there.ledger):
                try:
                    async for piece in way.pieces(client, [("user", "Go.")]):
                        text += piece
                except Exception:
                    return text
            raise AssertionError("the stream did not break")

        async def story() -> None:
            client = there.client(max_retries=0)
            assert SECRET in await asked(client)
            assert "[redacted: github-token]" in await asked(client)

        there.run(story)
        assert SECRET not in there.text("x")
    [warning] = [one for one in caplog.records if one.name == "turnledger.redaction"]
    assert "broke off" in warning.getMessage()


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
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_field_that_is_never_stored_is_not_stored_of_a_reply(way: Way) -> None:
    """A redactor of one's own: the record takes what it leaves, and a resume gets that."""
    call = Call("log_in", '{"password": "correct horse"}')
    redactor = Redactor(fields=["password"], on_redacted="warn")
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

"""Media to every provider: by URL and as bytes, or a clear error before anything is sent."""

from __future__ import annotations

import base64
from typing import Any, get_args

import pytest

from tests.conformance.providers.harness import UnderTest
from tests.servers.serving import Answer, replies
from tests.unit.runtime.evaluations import messages, on, prompt_of
from turnledger.adapters.providers.media import UnsupportedMediaError
from turnledger.ledger import Ledger
from turnledger.ledger.events.messages import Modality
from turnledger.runtime import PromptEvaluationError
from turnledger.runtime.agent.messages.builder import MessageBuilder
from turnledger.runtime.agent.prompts.prompt import Prompt

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
CONTENT: dict[Modality, tuple[bytes, str]] = {
    "image": (PNG, "image/png"),
    "audio": (b"RIFF\x24\x00\x00\x00WAVEfmt ", "audio/wav"),
    "video": (b"\x00\x00\x00\x18ftypmp42", "video/mp4"),
    "document": (b"%PDF-1.4\n%%EOF", "application/pdf"),
}
URLS: dict[Modality, str] = {
    "image": "https://example.com/hat.png",
    "audio": "https://example.com/song.mp3",
    "video": "https://example.com/film.mp4",
    "document": "https://example.com/terms.pdf",
}


def _showing(modality: Modality, source: str) -> Prompt[Any]:
    builder = MessageBuilder.next_step(None).add_text("What is this?")
    add = getattr(builder, f"add_{modality}")
    if source == "url":
        add("a thing", URLS[modality])
    else:
        add("a thing", data=CONTENT[modality][0], mime=CONTENT[modality][1])
    return prompt_of().with_messages(builder)


@pytest.mark.parametrize("source", ["url", "bytes"])
@pytest.mark.parametrize("modality", get_args(Modality))
def test_media_arrives_or_is_refused_before_it_is_sent(
    provider: UnderTest, modality: Modality, source: Any
) -> None:
    """What the format takes, the server gets whole, under its label; for the rest an error."""
    provider.tells(replies(Answer("A thing.")))
    with Ledger.open("memory://") as ledger:
        session = on(ledger)
        prompt = _showing(modality, source)
        if provider.capabilities.takes(modality, source):
            assert provider.adapter().evaluate(prompt, session=session).text == "A thing."
            body = str(provider.server.bodies[0])
            assert "Media 1: a thing" in body
            sent = URLS[modality] if source == "url" else _base64(CONTENT[modality][0])
            assert sent in body.replace("-", "+").replace("_", "/") or sent in body
            assert provider.server.refused == []
        else:
            with pytest.raises(PromptEvaluationError, match="can't take") as caught:
                provider.adapter().evaluate(prompt, session=session)
            assert isinstance(caught.value.__cause__, UnsupportedMediaError)
            assert caught.value.phase == "request"
            assert provider.server.asked == []
        assert [one.role for one in messages(session)][:2] == ["system", "user"]


@pytest.mark.parametrize("source", ["url", "bytes"])
@pytest.mark.parametrize("modality", get_args(Modality))
def test_media_that_can_not_be_taken_is_a_hint_if_asked_for(
    provider: UnderTest, modality: Modality, source: Any
) -> None:
    """A line of text in its place; what can be taken is sent all the same."""
    provider.tells(replies(Answer("A thing.")))
    with Ledger.open("memory://") as ledger:
        adapter = provider.adapter(unsupported_media="hint")
        answer = adapter.evaluate(_showing(modality, source), session=on(ledger))
    assert answer.text == "A thing."
    said = str(provider.server.bodies[0])
    assert "Media 1: a thing" in said
    assert ("can't be shown here" in said) != provider.capabilities.takes(modality, source)
    assert provider.server.refused == []


def test_media_is_numbered_through_the_conversation(provider: UnderTest) -> None:
    """So that the next message can speak of the second image."""
    builder = MessageBuilder.next_step(None).add_image("a hat", URLS["image"]).add_text("Look.")
    more = MessageBuilder.next_step(None).add_image(None, data=PNG)
    provider.tells(replies(Answer("Two images.")))
    with Ledger.open("memory://") as ledger:
        prompt = prompt_of().with_messages(builder, more)
        provider.adapter().evaluate(prompt, session=on(ledger))
    said = str(provider.server.bodies[0])
    assert said.index("Media 1: a hat") < said.index("Look.") < said.index("Media 2:")
    assert provider.server.refused == []


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()

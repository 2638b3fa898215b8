"""Messages that a conversation opens with: recorded, sent, and part of what the prompt is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent import says
from tests.unit.runtime.evaluations import Scripted, again, events, messages, on, prompt_of
from turnledger.ledger import Ledger, MediaContent, MessageAppended, TextContent, blob_name
from turnledger.projections import MediaBlock, TextBlock, ToolResultBlock, ToolUseBlock
from turnledger.runtime import PromptEvaluationError, PromptMismatch, PromptRenderError, Session
from turnledger.runtime.agent.messages.builder import MessageBuilder
from turnledger.runtime.agent.messages.message import Message
from turnledger.runtime.agent.messages.results import OptionResultBuilder
from turnledger.runtime.agent.prompts.prompt import Prompt

PNG = b"\x89PNG\r\n\x1a\n..."


def _looking(hint: str = "a hat") -> Prompt[Any]:
    said = MessageBuilder.next_step(None).add_text("Look.").add_image(hint, data=PNG)
    return prompt_of().with_messages(said)


def test_a_conversation_opens_with_a_prompts_messages() -> None:
    """They stand after the system text, in the ledger and in the request, with their bytes."""
    with Ledger.open("memory://") as ledger:
        session, adapter = on(ledger), Scripted([says("A hat.")])
        adapter.evaluate(_looking(), session=session)
        system, said, reply = messages(session)
        assert [one.role for one in (system, said, reply)] == ["system", "user", "assistant"]
        assert [(one.sequence, one.turn) for one in (system, said, reply)] == [
            (0, 0),
            (1, 0),
            (2, 1),
        ]
        text, media = said.parts
        assert text == TextContent("Look.")
        assert isinstance(media, MediaContent)
        assert (media.blob, media.prompt_hint) == (blob_name(PNG), "a hat")
        assert ledger.blob(blob_name(PNG)) == PNG
        (request,) = adapter.requests
        (turn,) = request.turns
        assert not turn.synthetic
        assert turn.blocks[0] == TextBlock("Look.")
        assert isinstance(turn.blocks[1], MediaBlock)
        assert request.blob(turn.blocks[1].blob or "") == PNG


def test_what_was_said_before_can_be_brought_along() -> None:
    """Calls with their results too: nothing of it is run, and the reply is the next turn."""
    builder = MessageBuilder.next_step(None)
    asked = builder.add_text("Find it.").to_message()
    call = builder.add_option_call("search", {"q": "x"}).last_option_call
    found = OptionResultBuilder.response_to(call).success(["a"])
    prompt = prompt_of().with_messages(asked, call, found)
    session, adapter = Session(), Scripted(lambda request: says(f"turn {request.turn}"))
    assert adapter.evaluate(prompt, session=session).text == "turn 2"
    (request,) = adapter.requests
    kinds = [type(block) for turn in request.turns for block in turn.blocks]
    assert kinds == [TextBlock, ToolUseBlock, ToolResultBlock]


def test_messages_are_part_of_what_the_prompt_is() -> None:
    """Resumed with other media it is another prompt; with the same it goes on, in any process."""
    with Ledger.open("memory://") as ledger:
        session = on(ledger)
        with pytest.raises(PromptEvaluationError):
            Scripted([ValueError("down")]).evaluate(_looking(), session=session)
        other = again(session)
        with pytest.raises(PromptMismatch):
            Scripted([says("ok")]).evaluate(_looking("a cap"), session=other, resume=True)
        answer = Scripted([says("ok")]).evaluate(_looking(), session=other, resume=True)
        assert answer.text == "ok"
        assert len(events(other, MessageAppended)) == 3


def test_a_prompt_without_messages_is_what_it_was() -> None:
    """Digests of runs that were recorded before stay right."""
    assert prompt_of().render().digest == prompt_of().with_messages().render().digest
    assert prompt_of().render().digest != _looking().render().digest


def test_an_invocations_id_does_not_make_another_prompt() -> None:
    """A program that builds its messages anew after a crash goes on with its run."""

    def built() -> Prompt[Any]:
        builder = MessageBuilder.next_step(None)
        call = builder.add_option_call("search", {"q": "x"}).last_option_call
        return prompt_of().with_messages(call, OptionResultBuilder.response_to(call).success(1))

    assert built().render().digest == built().render().digest


def _messages(what: str) -> list[Any]:
    builder = MessageBuilder.next_step(None)
    call = builder.add_option_call("search", {}).last_option_call
    said = builder.add_text("Hm.").to_message()
    return {
        "an open call": [call, said],
        "a result of nothing": [OptionResultBuilder.response_to(call).success(1)],
        "a system message": [said.model_copy(update={"role_hint_for_llm": "system"})],
        "the assistant last": [said.model_copy(update={"role_hint_for_llm": "assistant"})],
        "no message": ["Hm."],
    }[what]


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("an open call", "have no result"),
        ("a result of nothing", "was not called"),
        ("a system message", "put it into a section"),
        ("the assistant last", "the assistant's own"),
        ("no message", "of type str"),
    ],
)
def test_what_opens_no_conversation_is_refused(what: str, why: str) -> None:
    """Where the prompt is made, and not when money is spent."""
    with pytest.raises(PromptRenderError, match=why):
        prompt_of().with_messages(*_messages(what))


def test_media_whose_bytes_are_nowhere_fails_before_anything_is_sent() -> None:
    """The error names the blob, and nothing is recorded."""
    named = MessageBuilder.next_step(None).add_image("a hat", data=PNG).to_message()
    session, adapter = Session(), Scripted([says("ok")])
    with pytest.raises(PromptEvaluationError, match="There is no blob sha256:"):
        adapter.evaluate(prompt_of().with_messages(named), session=session)
    assert adapter.requests == []
    assert isinstance(named, Message)
    assert messages(session) == []

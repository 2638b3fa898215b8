"""Seed 001, messages with media and options: its code blocks as printed, but for import paths.

The printed models are compared with ours field by field. Two rulings differ from them on
purpose: media has a `url` or a `blob` (X26), and ours are frozen and take no other fields.
"""

from __future__ import annotations

from typing import Any, Literal, Optional

import pytest
from pydantic import BaseModel, HttpUrl

from turnledger.runtime import (
    MediaPart,
    Message,
    MessageBuilder,
    OptionCallPayload,
    OptionResultBuilder,
    OptionResultPayload,
    TextPart,
)
from turnledger.runtime.agent.messages.message import PartsPayload


class Printed:
    """The seed's own classes."""

    class TextPart(BaseModel):
        kind: Literal["text"] = "text"
        text: str

    class MediaPart(BaseModel):
        kind: Literal["media"] = "media"

        modality: Literal[
            "image",
            "audio",
            "video",
            "document",
        ]

        url: HttpUrl

        # optional metadata
        mime: Optional[str] = None  # noqa: UP045 - as printed

        # prompt sugar only (labels, descriptions)
        prompt_hint: Optional[str] = None  # noqa: UP045

        # internal correlation / replay aid
        id: Optional[str] = None  # noqa: UP045

    class StepGrouping(BaseModel):
        step_num: Optional[int]  # noqa: UP045

    class OptionCallPayload(BaseModel):
        kind: Literal["option_call"] = "option_call"
        invocation_id: str  # unique per call (pairs call ↔ result)
        option_name: str
        arguments: dict[str, Any]

    class OptionResultPayload(BaseModel):
        kind: Literal["option_result"] = "option_result"
        invocation_id: str  # must match the corresponding option_call
        option_name: str
        result: Any
        is_error: bool = False

        # minimal structured error (used when is_error=True)
        error_type: Optional[str] = None  # noqa: UP045
        error_message: Optional[str] = None  # noqa: UP045
        retryable: Optional[bool] = None  # noqa: UP045


URL = "https://example.com/a.png"
CALL = {"invocation_id": "i1", "option_name": "search_web"}


@pytest.mark.parametrize(
    ("printed", "ours", "given"),
    [
        (Printed.TextPart, TextPart, {"text": "Hi"}),
        (Printed.MediaPart, MediaPart, {"modality": "image", "url": URL}),
        (
            Printed.MediaPart,
            MediaPart,
            {"modality": "document", "url": URL, "mime": "a/b", "prompt_hint": "a", "id": "m1"},
        ),
        (Printed.OptionCallPayload, OptionCallPayload, {**CALL, "arguments": {"query": "hats"}}),
        (Printed.OptionResultPayload, OptionResultPayload, {**CALL, "result": [1, {"a": None}]}),
        (
            Printed.OptionResultPayload,
            OptionResultPayload,
            {
                **CALL,
                "result": None,
                "is_error": True,
                "error_type": "E",
                "error_message": "m",
                "retryable": True,
            },
        ),
    ],
)
def test_the_models_are_as_printed(
    printed: type[BaseModel], ours: type[BaseModel], given: dict[str, Any]
) -> None:
    """S1-5, S1-6, S1-8, S1-9: the same fields, defaults and JSON."""
    assert list(printed.model_fields) == [
        name for name in ours.model_fields if name in printed.model_fields
    ]
    for name, field in printed.model_fields.items():
        found = ours.model_fields[name]
        if (ours, name) != (MediaPart, "url"):  # X26
            assert (found.is_required(), found.default) == (field.is_required(), field.default)
    wanted = printed.model_validate(given).model_dump(mode="json")
    made = ours.model_validate(given).model_dump(mode="json")
    assert {name: value for name, value in made.items() if name in wanted} == wanted
    assert {value for name, value in made.items() if name not in wanted} <= {None}


def test_a_message_has_a_step_number_or_none() -> None:
    """S1-7."""
    for number in (None, 3):
        message = MessageBuilder.continue_step(number).add_text("Hi").to_message()
        printed = Printed.StepGrouping.model_validate(message.model_dump(include={"step_num"}))
        assert printed.step_num == message.step_num == number


def test_the_example_of_the_seed_runs() -> None:
    """S1-12, S1-13: as it is printed, with the names that it takes for granted."""
    payload = PartsPayload(parts=(TextPart(text="Let me see."),))
    last_message = Message(policy="planner", step_num=4, payload=payload)
    results = [{"title": "The Hobbit"}]
    url_1, url_2 = "https://example.com/girl.png", "https://example.com/dress.png"

    builder = MessageBuilder.continue_step(last_message)

    builder.add_option_call("search_web", {"query": "hobbit movie"})
    # ... executor runs it ...
    result_builder = OptionResultBuilder.response_to(builder.last_option_call)
    option_result_msg = result_builder.success(results)

    builder.add_image(
        "girl wearing a hat",
        url_1,
    )

    builder.add_image(
        "fancy dress",
        url_2,
    )

    builder.add_text(
        "Take the dress from the second image and apply it to the person in the first image"
    )

    message = builder.to_message()

    assert message.kind == "parts"
    assert [part.kind for part in message.parts] == ["media", "media", "text"]
    assert message.step_num == option_result_msg.step_num == 4
    assert option_result_msg.option_result is not None
    assert option_result_msg.option_result.result == results
    (call,) = builder.option_calls
    assert call.option_call is not None
    assert call.option_call.invocation_id == option_result_msg.option_result.invocation_id

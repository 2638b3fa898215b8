"""`OpenAIAdapter`: which clients it takes, how it makes one, and what it tells it."""

from __future__ import annotations

import builtins
import importlib.util
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from tests.unit.runtime.evaluations import Sum, prompt_of, tool
from turnledger.adapters import AnthropicAdapter, GeminiAdapter, LiteLLMAdapter, OpenAIAdapter
from turnledger.ledger import InvalidInputError
from turnledger.runtime import PromptEvaluationError, Session

ADD = SimpleNamespace(
    id="c1", type="function", function=SimpleNamespace(name="add", arguments='{"n": 2}')
)


def _said(**message: Any) -> SimpleNamespace:
    """An answer as plain as it can be: only what is needed is there."""
    fields = {"content": None, "tool_calls": None} | message
    return SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(**fields))])


class Client:
    """Has `chat.completions.create` and nothing else."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._create))

    def _create(
        self,
        *,
        model: str,
        messages: list[Any],
        tools: Any = None,
        tool_choice: Any = None,
        response_format: Any = None,
    ) -> Any:
        given = {"model": model, "messages": list(messages), "tools": tools}
        self.asked.append({**given, "choice": tool_choice, "format": response_format})
        return self.answers.pop(0)


def test_a_client_with_only_chat_completions_is_enough() -> None:
    """S4-19: with the arguments that the seed names and no other, and answers without usage."""
    client = Client(_said(tool_calls=[ADD]), _said(content="Two."))
    adapter: OpenAIAdapter[Any] = OpenAIAdapter(model="m", client=client)
    assert adapter.evaluate(prompt_of(tool()), session=Session()).text == "Two."
    assert [one["choice"] for one in client.asked] == ["auto", "auto"]
    assert client.asked[0]["model"] == "m"
    assert client.asked[0]["format"] is None


class Dumped(SimpleNamespace):
    """An answer whose `model_dump` takes no options."""

    def model_dump(self) -> dict[str, Any]:
        return {"id": "r1"}


def test_the_payload_is_what_the_client_can_give_of_its_answer() -> None:
    """S4-2: a plain model_dump(), a mapping, or nothing."""
    message = {"content": "One.", "tool_calls": None}
    data = {"choices": [{"message": message}]}
    for answer, payload in (
        (MappingProxyType(data), data),
        (Dumped(choices=_said(**message).choices), {"id": "r1"}),
        (_said(**message), None),
    ):
        adapter: OpenAIAdapter[Any] = OpenAIAdapter(model="m", client=Client(answer))
        response = adapter.evaluate(prompt_of(), session=Session())
        assert (response.text, response.provider_payload) == ("One.", payload)


def test_what_a_client_parsed_comes_first() -> None:
    """S4-11, S4-19: native parsed output, and the schema is passed only where it is wanted."""
    client = Client(_said(content="", parsed={"total": 4}))
    adapter: OpenAIAdapter[Any] = OpenAIAdapter(model="m", client=client)
    assert adapter.evaluate(prompt_of(output=Sum), session=Session()).output == Sum(4)
    schema = client.asked[0]["format"]["json_schema"]
    assert schema["strict"] is True
    assert "JSON" not in client.asked[0]["messages"][0]["content"]


def test_without_native_formats_the_prompt_asks_for_the_output() -> None:
    """S4-18, S4-19: no response_format, and the instructions are in the text."""
    client = Client(_said(content='{"total": 4}'))
    adapter: OpenAIAdapter[Any] = OpenAIAdapter(
        model="m", client=client, use_native_response_format=False
    )
    assert adapter.evaluate(prompt_of(output=Sum), session=Session()).output == Sum(4)
    assert client.asked[0]["format"] is None
    assert "JSON" in client.asked[0]["messages"][0]["content"]


def test_a_factory_is_called_once_and_only_when_it_is_needed() -> None:
    """S4-19: with `client_kwargs`; a run that is replayed needs none."""
    made: list[dict[str, Any]] = []

    def factory(**kwargs: Any) -> Client:
        made.append(kwargs)
        return Client(_said(content="One."), _said(content="Two."))

    adapter: OpenAIAdapter[Any] = OpenAIAdapter(
        model="m", client_factory=factory, client_kwargs={"api_key": "k"}
    )
    assert made == []
    for _ in range(2):
        adapter.evaluate(prompt_of(), session=Session())
    assert made == [{"api_key": "k"}]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"model": ""}, "which model"),
        ({"client": Client(), "client_kwargs": {}}, "not both"),
        ({"client": Client(), "client_factory": Client}, "not both"),
        ({"wire_format": "completions"}, "'chat' or 'responses'"),
        ({"parallel_tools": 0}, "1 or more"),
    ],
)
def test_what_can_not_be_meant_is_refused(options: dict[str, Any], why: str) -> None:
    """When the adapter is made, with what to do."""
    with pytest.raises(InvalidInputError, match=why):
        OpenAIAdapter(**{"model": "m", **options})


@pytest.mark.parametrize(
    ("adapter", "package", "extra", "enough"),
    [
        (OpenAIAdapter, "openai", "openai", "client"),
        (LiteLLMAdapter, "litellm", "litellm", "completion"),
        (AnthropicAdapter, "anthropic", "anthropic", "client"),
        (GeminiAdapter, "google.genai", "gemini", "client"),
    ],
)
def test_a_package_that_is_not_there_is_named_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, adapter: Any, package: str, extra: str, enough: str
) -> None:
    """S4-21: a RuntimeError when the adapter is made, unless it is given all it needs."""
    found, imported = importlib.util.find_spec, builtins.__import__
    monkeypatch.setattr(
        "turnledger.adapters.providers.sdk.find_spec",
        lambda name: None if name == package else found(name),
    )

    def importing(name: str, *more: Any, **options: Any) -> Any:
        assert name.partition(".")[0] != package.partition(".")[0]
        return imported(name, *more, **options)

    monkeypatch.setattr(builtins, "__import__", importing)
    with pytest.raises(RuntimeError, match=rf"'{package}'.*pip install 'turnledger\[{extra}\]'"):
        adapter(model="m")
    adapter(model="m", **{enough: lambda **_: None})


def test_an_answer_without_a_choice_is_an_error_of_the_response() -> None:
    """S4-7: there is nothing to take as the answer."""
    adapter: OpenAIAdapter[Any] = OpenAIAdapter(model="m", client=Client(_said()))
    with pytest.raises(PromptEvaluationError) as caught:
        adapter.evaluate(prompt_of(), session=Session())
    assert caught.value.phase == "response"
    none = OpenAIAdapter[Any](model="m", client=Client(SimpleNamespace(choices=[])))
    with pytest.raises(PromptEvaluationError, match="no choices"):
        none.evaluate(prompt_of(), session=Session())


def test_a_client_that_was_given_is_left_open() -> None:
    """Whoever made it closes it; one that the adapter made is closed with it, and made anew."""
    closed: list[str] = []

    def client(name: str) -> Any:
        made = Client(_said(content="ok"))
        made.close = lambda: closed.append(name)  # type: ignore[attr-defined]
        return made

    with OpenAIAdapter[Any](model="m", client=client("given")):
        pass
    assert closed == []
    adapter: OpenAIAdapter[Any] = OpenAIAdapter(model="m", client_factory=lambda: client("made"))
    for _ in range(2):
        with adapter:
            adapter.evaluate(prompt_of(), session=Session())
    assert closed == ["made", "made"]

"""Requests at the wire: what their digest is of, and that every request of a run is a step."""

from __future__ import annotations

import asyncio
import gzip
import threading
from base64 import b64encode
from contextlib import nullcontext
from typing import Any

import httpx
import httpx2
import pytest
from google import genai
from openai import AsyncOpenAI, OpenAI

from turnledger import wrap
from turnledger.adapters.clients.endpoints import model_call
from turnledger.adapters.clients.wire_request import read_request
from turnledger.ledger import (
    Ledger,
    MessageAppended,
    ModelCalled,
    ModelReplied,
    TokenUsage,
    ToolCallCompleted,
    ToolCallStarted,
    run_id_for,
)
from turnledger.ledger.redaction import STANDARD
from turnledger.projections import Usage, fold
from turnledger.runtime.steps import OpenStep, StepSpec, current_scope, run

BASE = "http://127.0.0.1:9/v1"
HELLO: Any = [{"role": "user", "content": "Hello?"}]
KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"


def _digest(method: str = "POST", url: str = f"{BASE}/embeddings", **body: Any) -> str:
    request = httpx.Request(method, url, **body)
    request.read()
    return read_request("openai", request, STANDARD).digest


def test_the_digest_is_of_method_path_and_body() -> None:
    """Headers, the query and the order of keys are not; anything else is."""
    first = _digest(json={"a": 1, "b": [2]})
    assert _digest(json={"b": [2], "a": 1}, headers={"x-request": "2"}) == first
    assert _digest(url=f"{BASE}/embeddings?page=2", json={"a": 1, "b": [2]}) == first
    assert _digest(json={"a": 1, "b": [2], "idempotency_key": "new"}) == first
    others = [
        _digest(method="PUT", json={"a": 1, "b": [2]}),
        _digest(url=f"{BASE}/files", json={"a": 1, "b": [2]}),
        _digest(json={"a": 1.0, "b": [2]}),
        _digest(json={"a": True, "b": [2]}),
        _digest(json={"a": 1, "b": [2, 2]}),
        _digest(content=b"\xff\x00"),
        _digest(),
    ]
    assert len({first, *others}) == 8


def test_the_digest_is_of_the_body_after_redaction() -> None:
    """A resume has the marker where the live run had the secret."""
    assert STANDARD.text(KEY) != KEY
    assert _digest(json={"said": KEY}) == _digest(json={"said": STANDARD.text(KEY)})


def test_a_form_is_known_by_its_parts_without_the_boundary() -> None:
    """The boundary is made up for each request; a part's bytes count by their hash."""

    def form(content: bytes = b"\x89PNG\r\n\x00", name: str = "a.png", purpose: str = "x") -> str:
        return _digest(files={"file": (name, content)}, data={"purpose": purpose})

    assert form() == form()
    assert len({form(), form(b"\x89PNG\r\n\x01"), form(name="b.png"), form(purpose="y")}) == 4


@pytest.mark.parametrize(
    ("sdk", "path", "name"),
    [
        ("openai", "/v1/chat/completions", "openai.chat.completions"),
        ("openai", "/openai/deployments/x/chat/completions", "openai.chat.completions"),
        ("openai", "/v1/responses", "openai.responses"),
        ("openai", "/v1/responses/resp_1/cancel", None),
        ("openai", "/v1/files", None),
        ("anthropic", "/v1/messages", "anthropic.messages"),
        ("anthropic", "/v1/messages/batches", None),
        ("anthropic", "/v1/messages/count_tokens", None),
        ("google-genai", "/v1beta/models/g:streamGenerateContent", "google.generate_content"),
        ("google-genai", "/v1beta/models/g:countTokens", None),
    ],
)
def test_model_calls_are_told_from_other_requests(sdk: str, path: str, name: str | None) -> None:
    """By the end of the path, whatever host, version or deployment comes before it."""
    found = model_call(sdk, "POST", path)
    assert (found.name if found else None) == name
    assert model_call(sdk, "GET", path) is None


# --- steps -----------------------------------------------------------------------------------


def _client(answer: Any, kind: Any = OpenAI, **options: Any) -> Any:
    transport = httpx.MockTransport(answer)
    http = (httpx.Client if kind is OpenAI else httpx.AsyncClient)(transport=transport)
    return wrap(kind(api_key=KEY, base_url=BASE, http_client=http, **options))


def _events(ledger: Ledger, *kinds: Any) -> list[Any]:
    records = ledger.read(run_id_for("w"))
    return [record.event for record in records if isinstance(record.event, kinds)]


def test_a_poll_gets_its_own_answers_in_their_order() -> None:
    """The same request many times: each has an ordinal, and its own outcome."""
    states = iter(["queued", "running", "done", "never"])

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"id": "b", "status": next(states)})

    client = _client(answer)
    with Ledger.open("memory://") as ledger:

        def polled() -> list[str]:
            with run("w", ledger=ledger):
                return [client.batches.retrieve("b").status for _ in range(3)]

        assert polled() == polled() == ["queued", "running", "done"]
        starts = _events(ledger, ToolCallStarted)
        assert [one.call_id.partition(":")[2][16:] for one in starts] == ["", "-2", "-3"]
        assert starts[0].name == "GET /v1/batches/b"
        assert len(_events(ledger, ToolCallCompleted)) == 3
        assert _events(ledger, ModelCalled) == []


def test_equal_requests_side_by_side_get_an_answer_each() -> None:
    """They are interchangeable: no answer is given twice, and none is lost."""
    numbers = iter(range(100))

    async def answer(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        return httpx.Response(200, json={"id": f"b{next(numbers)}", "object": "batch"})

    client = _client(answer, AsyncOpenAI)

    async def asked(ledger: Ledger) -> list[str]:
        async with run("w", ledger=ledger):
            found = await asyncio.gather(*(client.batches.retrieve("b") for _ in range(8)))
            return sorted(one.id for one in found)

    with Ledger.open("memory://") as ledger:
        first = asyncio.run(asked(ledger))
        assert len(set(first)) == 8
        assert asyncio.run(asked(ledger)) == first
    assert next(numbers) == 8


def test_threads_that_copy_the_context_ask_side_by_side() -> None:
    """Different requests of a synchronous client in threads of one run."""
    import contextvars

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"id": request.url.path.rpartition("/")[2]})

    client = _client(answer)
    found: dict[str, str] = {}
    with Ledger.open("memory://") as ledger:
        for _ in range(2):
            with run("w", ledger=ledger):
                threads = []
                for name in ("a", "b", "c"):
                    context = contextvars.copy_context()

                    def ask(name: str = name) -> None:
                        found[name] = client.batches.retrieve(name).id

                    threads.append(threading.Thread(target=context.run, args=(ask,)))
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            assert found == {"a": "a", "b": "b", "c": "c"}
        assert len(_events(ledger, ToolCallStarted)) == 3


def test_a_status_of_another_request_is_its_answer() -> None:
    """A 404 of a file: the same error live and from the record."""
    from openai import NotFoundError

    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(404, json={"error": {"message": "gone"}})

    client = _client(answer)
    with Ledger.open("memory://") as ledger:
        for _ in range(2):
            with run("w", ledger=ledger), pytest.raises(NotFoundError, match="gone"):
                client.files.retrieve("f")
    assert len(asked) == 1


@pytest.mark.parametrize("size", [10, 2_000_000])
def test_bytes_and_long_texts_are_blobs_of_the_reply(size: int) -> None:
    """Speech is bytes; a long JSON text does not make an event of its size."""
    sound = bytes(range(256)) * (size // 256 + 1)
    text = "x" * size

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/speech"):
            return httpx.Response(200, content=sound, headers={"content-type": "audio/mpeg"})
        return httpx.Response(200, json={"data": [{"b64_json": text}], "created": 1})

    client = _client(answer)
    with Ledger.open("memory://") as ledger:
        for _ in range(2):
            with run("w", ledger=ledger):
                spoken = client.audio.speech.create(model="m", voice="alloy", input="Hi")
                assert spoken.content == sound
                assert client.images.generate(prompt="a cat").data[0].b64_json == text
        speech, image = _events(ledger, ModelReplied)
        assert len(speech.blobs) == 1
        assert len(image.blobs) == (1 if size > 1_000_000 else 0)
        assert ledger.verify(run_id_for("w")).ok


def test_embeddings_are_model_calls_with_their_usage() -> None:
    """They have no conversation; the usage of a run counts them all the same."""

    def answer(request: httpx.Request) -> httpx.Response:
        data = [{"object": "embedding", "index": 0, "embedding": [0.25]}]
        used = {"prompt_tokens": 5, "total_tokens": 5}
        return httpx.Response(200, json={"data": data, "model": "e", "usage": used})

    client = _client(answer)
    with Ledger.open("memory://") as ledger:
        with run("w", ledger=ledger):
            found = client.embeddings.create(model="e", input="x", encoding_format="float")
            assert found.data[0].embedding == [0.25]
        [replied] = _events(ledger, ModelReplied)
        assert (replied.usage.input_tokens, replied.model) == (5, "e")
        assert fold(ledger.read(run_id_for("w")), Usage()).total.input_tokens == 5


def test_a_call_inside_of_a_frameworks_model_call_counts_once() -> None:
    """Its messages and its usage are those of the step that it is in."""

    def answer(request: httpx.Request) -> httpx.Response:
        message = {"role": "assistant", "content": "Hi."}
        used = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return httpx.Response(200, json={"choices": choices, "model": "m", "usage": used})

    client = _client(answer)
    with Ledger.open("memory://") as ledger:
        with run("w", ledger=ledger):
            spec = StepSpec(name="framework", kind="model")
            scope = current_scope()
            assert scope is not None
            outer = scope.begin(spec)
            assert isinstance(outer, OpenStep)
            with scope.inside(outer):
                client.chat.completions.create(model="m", messages=HELLO)
            outer.complete("Hi.", usage=TokenUsage(input_tokens=5, output_tokens=1))
        assert _events(ledger, MessageAppended) == []
        assert fold(ledger.read(run_id_for("w")), Usage()).total.input_tokens == 5


def test_a_request_of_many_megabytes_is_recorded_by_its_digest() -> None:
    """Long texts by their hash, and all of it if it is still too large; the call is made."""

    def answer(request: httpx.Request) -> httpx.Response:
        data = [{"object": "embedding", "index": 0, "embedding": [0.25]}]
        return httpx.Response(200, json={"data": data, "model": "e"})

    client = _client(answer)
    with Ledger.open("memory://") as ledger:
        for _ in range(2):
            with run("w", ledger=ledger):
                for given in (["x" * 10_000_000], ["x" * 200_000] * 50, ["short"]):
                    client.embeddings.create(model="e", input=given, encoding_format="float")
        long, many, short = (one.request for one in _events(ledger, ModelCalled))
        assert long["body"]["input"][0]["bytes"] == 10_000_000
        assert many["bytes"] > 10_000_000
        assert short["add"] == ["short"]
        assert short["since"].startswith("openai.embeddings:")


@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
def test_the_server_is_told_which_attempt_it_is(inside: bool) -> None:
    """As the SDK tells it, in a run and outside of one."""
    told: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        told.append(request.headers["x-stainless-retry-count"])
        if len(told) < 3:
            return httpx.Response(503, headers={"retry-after-ms": "1"})
        return httpx.Response(200, json={"id": "b"})

    client = _client(answer)
    with Ledger.open("memory://") as ledger, run("w", ledger=ledger) if inside else nullcontext():
        assert client.batches.retrieve("b").id == "b"
    assert told == ["0", "1", "2"]


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_bodies_are_recorded_as_they_are_after_decoding(kind: str) -> None:
    """A compressed answer is text on record, and is handed on without the header that says so."""
    plain = b'{"id": "b", "status": "done"}'

    def answer(request: httpx.Request) -> httpx.Response:
        headers = {"content-type": kind, "content-encoding": "gzip"}
        return httpx.Response(200, content=gzip.compress(plain), headers=headers)

    client = _client(answer)
    with Ledger.open("memory://") as ledger:
        for _ in range(2):
            with run("w", ledger=ledger):
                assert client.get("/batches/b", cast_to=httpx.Response).content == plain
        [done] = _events(ledger, ToolCallCompleted)
        assert done.value == {"status": 200, "type": kind, "text": plain.decode()}


def test_a_redirect_is_followed_again_from_the_record() -> None:
    """To an address whose query, a signature say, is not stored."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if request.url.path == "/v1/files/f/content":
            there = "http://127.0.0.1:9/store/f?signature=s3cret"
            return httpx.Response(302, headers={"location": there})
        return httpx.Response(200, content=b"\xff\x00", headers={"content-type": "image/png"})

    http = httpx.Client(transport=httpx.MockTransport(answer), follow_redirects=True)
    client = wrap(OpenAI(api_key=KEY, base_url=BASE, http_client=http))
    with Ledger.open("memory://") as ledger:
        for _ in range(2):
            with run("w", ledger=ledger):
                assert client.files.content("f").content == b"\xff\x00"
        assert "s3cret" not in str([record.data for record in ledger.read(run_id_for("w"))])
    assert asked == ["/v1/files/f/content", "/store/f"]


def test_any_path_makes_a_step() -> None:
    """A long one, one with signs that can't be printed, and one with a secret in it."""

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"path": request.url.path[:40]})

    client = _client(answer)
    paths = [f"/{'x' * 300}", f"/{'x' * 299}y", "/a%0Ab", f"/{KEY}"]
    with Ledger.open("memory://") as ledger:
        for _ in range(2):
            with run("w", ledger=ledger):
                for path in paths:
                    assert client.get(path, cast_to=httpx.Response).status_code == 200
        starts = _events(ledger, ToolCallStarted)
        assert len({one.call_id for one in starts}) == 4
        assert KEY not in str([record.data for record in ledger.read(run_id_for("w"))])


def test_media_in_requests_and_replies_are_blobs_of_their_messages() -> None:
    """A picture that is sent, and one that comes back: each is stored once."""
    sent, made = b"\x89PNG sent", b"\x89PNG made"

    def answer(request: httpx2.Request) -> httpx2.Response:
        inline = {"mimeType": "image/png", "data": b64encode(made).decode()}
        parts = [{"text": "Here."}, {"inlineData": inline}]
        content = {"role": "model", "parts": parts}
        found = {"candidates": [{"content": content, "finishReason": "STOP"}]}
        return httpx2.Response(200, json=found)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    given = genai.Client(api_key=KEY, http_options={"httpx_client": http})
    client = wrap(given)
    picture = {"inline_data": {"mime_type": "image/png", "data": sent}}
    with Ledger.open("memory://") as ledger:
        for _ in range(2):
            with run("w", ledger=ledger):
                contents: Any = [{"role": "user", "parts": [{"text": "Draw."}, picture]}]
                told = client.models.generate_content(model="g", contents=contents)
                assert told.candidates[0].content.parts[1].inline_data.data == made
        user, model = (one.message for one in _events(ledger, MessageAppended))
        assert ledger.blob(user.parts[-1].blob) == sent
        assert ledger.blob(model.parts[-1].blob) == made
        assert ledger.verify(run_id_for("w")).ok

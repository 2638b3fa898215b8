"""Transports: the HTTP layer of a wrapped client, over the transport that the client had.

Inside of a run each request is a step: its start is on disk before it is sent, its outcome before
the SDK gets the end of it. Outside of a run it only retries, as the client would have done.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from threading import Lock
from typing import Any

from turnledger.adapters.clients.recorded_answer import Answer, stream_class
from turnledger.adapters.clients.retries import Retries, wait_before
from turnledger.adapters.clients.wire_call import (
    RETRY_COUNT,
    WireCall,
    Wrapping,
    raise_if_unrecordable,
    whole_answer,
)
from turnledger.ledger import TurnledgerError
from turnledger.runtime.steps import OpenStep, StepOutcome, current_scope
from turnledger.runtime.steps.scope import off_loop

CANCELLED = asyncio.CancelledError.__name__
# Headers of the body as it was sent; it is handed on decoded.
_OF_THE_BODY = frozenset({"content-encoding", "content-length", "transfer-encoding"})
# The last event of a stream: nothing comes after it, and a reader may act on it.
_LAST_EVENT = re.compile(
    rb"data: ?\[DONE\]|event: ?(?:message_stop|response\.(?:completed|incomplete|failed))\b"
)
_BETWEEN_EVENTS = re.compile(rb"\r?\n\r?\n")


class _Recording:
    """What the transports of both kinds of clients share.

    Args:
        inner: The transport that the client had.
        wrapping: What is known of the client.
        retries: Its rules for retries.
        given: The client itself: it owns the connections, and must not be closed by the garbage
            collector while this transport is in use.
    """

    def __init__(self, inner: Any, wrapping: Wrapping, retries: Retries, given: Any) -> None:
        self.inner, self.wrapping, self.retries, self._given = inner, wrapping, retries, given

    def marked(self, request: Any, taken: int) -> None:
        """Tell the server which attempt it is, as the SDK does."""
        if taken and RETRY_COUNT in request.headers:
            request.headers[RETRY_COUNT] = str(taken)

    def handed_on(self, response: Any, **body: Any) -> Any:
        """A live response with another body: its bytes, or a stream of them."""
        kept = [
            (name, value)
            for name, value in response.headers.raw
            if name.decode("ascii", "replace").lower() not in _OF_THE_BODY
        ]
        return self.wrapping.http.Response(
            response.status_code, headers=kept, extensions=response.extensions, **body
        )


def is_streamed(response: Any) -> bool:
    """Whether a response is handed on as it comes: events and media, not JSON and text."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip()
    return response.is_success and kind not in ("", "application/json", "text/plain")


class SyncRecording(_Recording):
    """Transport of a synchronous client."""

    def handle_request(self, request: Any) -> Any:
        request.read()
        scope = current_scope()
        if scope is None:
            return self._sent(request, None, None)
        try:
            call = WireCall(self.wrapping, scope, request)
            begun = scope.begin(*call.step())
            call.begun(begun)
            if isinstance(begun, StepOutcome):
                return call.recorded(begun)
            return self._performed(request, call, begun)
        except TurnledgerError as error:
            self.wrapping.through_sdk(error)
            raise

    def _performed(self, request: Any, call: WireCall, step: OpenStep) -> Any:
        try:
            return self._sent(request, call, step)
        except BaseException:
            step.leave()  # an interruption; an outcome is on record already
            raise

    def _sent(self, request: Any, call: WireCall | None, step: OpenStep | None) -> Any:
        """Send the request until it succeeds or may not be repeated; record how it ended."""
        taken = 0
        while True:
            self.marked(request, taken)
            failed: Any
            try:
                failed = response = self.inner.handle_request(request)
                if call is None and response.is_success:
                    return response
                if not is_streamed(response):
                    _read(response)
            except Exception as error:
                failed = error
            wait = wait_before(self.retries, taken, failed)
            if wait is None:
                return self._ended(failed, call, step)
            if call is not None and step is not None:
                call.attempt_failed(step, failed)
            time.sleep(wait)
            taken += 1

    def _ended(self, last: Any, call: WireCall | None, step: OpenStep | None) -> Any:
        if call is None or step is None:
            if isinstance(last, Exception):
                raise last
            return self.handed_on(last, content=last.content)
        if isinstance(last, Exception):
            call.broke(step, last)
            raise last
        if is_streamed(last):
            kind = stream_class(SyncTee, self.wrapping.http.SyncByteStream)
            return self.handed_on(last, stream=kind(Tee(call, step, last)))
        outcome = call.answered(step, whole_answer(last))
        raise_if_unrecordable(outcome)
        return self.handed_on(last, content=call.body(outcome, step, last.content))

    def close(self) -> None:
        """Nothing: the connections are those of the client that was given to `wrap`."""


class AsyncRecording(_Recording):
    """Transport of an asynchronous client; its disk work is done in threads."""

    async def handle_async_request(self, request: Any) -> Any:
        await request.aread()
        scope = current_scope()
        if scope is None:
            return await self._sent(request, None, None)
        try:
            call = await off_loop(partial(WireCall, self.wrapping, scope, request))
            begun = await scope.abegin(*call.step())
            await off_loop(partial(call.begun, begun))
            if isinstance(begun, OpenStep):
                return await self._performed(request, call, begun)
            if begun.error_type == CANCELLED:
                await self._until_cancelled(request)
            return await off_loop(partial(call.recorded, begun))
        except TurnledgerError as error:
            self.wrapping.through_sdk(error)
            raise

    async def _performed(self, request: Any, call: WireCall, step: OpenStep) -> Any:
        try:
            return await self._sent(request, call, step)
        except asyncio.CancelledError:
            CancelledCall(call, step)
            raise
        except BaseException:
            step.leave()
            raise

    async def _until_cancelled(self, request: Any) -> None:
        """Give no answer, as there was none: the caller cancels the call again.

        Code that does not, for it was changed, gets the time-out of the request.
        """
        limit = request.extensions.get("timeout", {}).get("read")
        try:
            async with asyncio.timeout(limit):
                await asyncio.Event().wait()
        except TimeoutError:
            http = self.wrapping.http
            raise http.ReadTimeout("Its caller cancelled this call.", request=request) from None

    async def _sent(self, request: Any, call: WireCall | None, step: OpenStep | None) -> Any:
        taken = 0
        while True:
            self.marked(request, taken)
            failed: Any
            try:
                failed = response = await self.inner.handle_async_request(request)
                if call is None and response.is_success:
                    return response
                if not is_streamed(response):
                    await _aread(response)
            except Exception as error:
                failed = error
            wait = wait_before(self.retries, taken, failed)
            if wait is None:
                return await self._ended(failed, call, step)
            if call is not None and step is not None:
                await off_loop(partial(call.attempt_failed, step, failed))
            await asyncio.sleep(wait)
            taken += 1

    async def _ended(self, last: Any, call: WireCall | None, step: OpenStep | None) -> Any:
        if call is None or step is None:
            if isinstance(last, Exception):
                raise last
            return self.handed_on(last, content=last.content)
        if isinstance(last, Exception):
            await off_loop(partial(call.broke, step, last))
            raise last
        if is_streamed(last):
            kind = stream_class(AsyncTee, self.wrapping.http.AsyncByteStream)
            return self.handed_on(last, stream=kind(Tee(call, step, last)))
        outcome = await off_loop(partial(call.answered, step, whole_answer(last)))
        raise_if_unrecordable(outcome)
        return self.handed_on(last, content=call.body(outcome, step, last.content))

    async def aclose(self) -> None:
        """Nothing: the connections are those of the client that was given to `wrap`."""


def _read(response: Any) -> None:
    try:
        response.read()
    finally:
        response.close()


async def _aread(response: Any) -> None:
    try:
        await response.aread()
    finally:
        await response.aclose()


# --- streams ---------------------------------------------------------------------------------


class CancelledCall:
    """A call whose caller cancelled it, with a time limit of its own say, before it was answered.

    Once the run goes on that is its outcome; if the run ends with it, nothing came of it.

    Args:
        call: The request.
        step: Its step.
    """

    is_left = True

    def __init__(self, call: WireCall, step: OpenStep) -> None:
        self._step, self._recorder = step, call.scope.recorder
        if not step.is_over:  # it may be answered, and cancelled while that was recorded
            self._recorder.streams[step.call_id] = self

    def settle(self) -> None:
        """Record that it was cancelled."""
        if self._recorder.streams.pop(self._step.call_id, None) is self:
            self._step.fail_with(error_type=CANCELLED, error_message="its caller cancelled it")

    def abandon(self) -> None:
        """Leave it without an outcome."""
        if self._recorder.streams.pop(self._step.call_id, None) is self:
            self._step.leave()


class Tee:
    """A stream on its way to its reader, and what came of it so far.

    Args:
        call: The request.
        step: Its step.
        response: The live response; its body has not been read.
    """

    def __init__(self, call: WireCall, step: OpenStep, response: Any) -> None:
        self.response, self._call, self._step = response, call, step
        self._came: list[bytes] = []
        self._tail = b""
        self._lock = Lock()
        self._is_over = False
        self.is_left = False
        self._streams[step.call_id] = self

    @property
    def _streams(self) -> dict[str, Any]:
        return self._call.scope.recorder.streams

    def add(self, chunk: bytes) -> bool:
        """Take a piece that came; whether it is the last that can come."""
        self._came.append(chunk)
        *events, self._tail = _BETWEEN_EVENTS.split(self._tail + chunk)
        return bool(events and not self._tail and _LAST_EVENT.match(events[-1]))

    def ended(self) -> None:
        """The stream is at its end: record it, before its reader knows."""
        if self._ends():
            self._record(self._answer())

    def broke(self, error: Exception) -> None:
        """The connection broke in the middle of it."""
        if self._ends():
            self._call.broke(self._step, error, self._answer())

    def settle(self) -> None:
        """Its reader has left it: record it as far as it came."""
        if self._ends():
            self._record(self._answer(left=True))

    def _record(self, answer: Answer) -> None:
        """Record what came; UnrecordableResultError if a resume can't hand it on."""
        raise_if_unrecordable(self._call.answered(self._step, answer))

    def abandon(self) -> None:
        """Leave it without an outcome."""
        if self._ends():
            self._step.leave()

    def _ends(self) -> bool:
        """Whether it ends now, and has not ended before."""
        with self._lock:
            first, self._is_over = not self._is_over, True
        if first:
            self._streams.pop(self._step.call_id, None)
        return first

    def _answer(self, *, left: bool = False) -> Answer:
        kind = self.response.headers.get("content-type", "")
        return Answer(self.response.status_code, kind, b"".join(self._came), left)


class SyncTee:
    """The stream as the HTTP module of a synchronous client reads it."""

    def __init__(self, tee: Tee) -> None:
        self._tee = tee

    def __iter__(self) -> Iterator[bytes]:
        tee = self._tee
        try:
            for chunk in tee.response.iter_bytes():
                if tee.add(chunk):
                    tee.ended()
                yield chunk
        except TurnledgerError:
            raise
        except Exception as error:
            tee.broke(error)
            raise
        tee.ended()

    def close(self) -> None:
        self._tee.is_left = True
        self._tee.response.close()


class AsyncTee:
    """The stream as the HTTP module of an asynchronous client reads it."""

    def __init__(self, tee: Tee) -> None:
        self._tee = tee

    async def __aiter__(self) -> AsyncIterator[bytes]:
        tee = self._tee
        try:
            async for chunk in tee.response.aiter_bytes():
                if tee.add(chunk):
                    await off_loop(tee.ended)
                yield chunk
        except TurnledgerError:
            raise
        except Exception as error:
            await off_loop(partial(tee.broke, error))
            raise
        await off_loop(tee.ended)

    async def aclose(self) -> None:
        self._tee.is_left = True
        await self._tee.response.aclose()


def recording_class(kind: type, http: Any) -> type:
    """The class of a transport, of the client's HTTP module."""
    base = http.BaseTransport if kind is SyncRecording else http.AsyncBaseTransport
    return stream_class(kind, base)

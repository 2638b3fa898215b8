"""Base of the adapters over a provider's own SDK: a wire format, and a client behind it.

A request is made in one place for both of an SDK's clients, the synchronous one (`send`) and the
one for asyncio (`send_async`), and so are their answers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, TypeVar, Unpack

from turnledger.adapters.providers.retry import advice_for
from turnledger.adapters.providers.wire import Capabilities, WireFormat
from turnledger.ledger import InvalidInputError
from turnledger.ledger.arguments import explain_methods
from turnledger.runtime import ProviderAdapter, Reply, Request, TextReceived, ThrottlePolicy
from turnledger.runtime.agent.models import RetryAdvice, Sending, ToolChoice

if TYPE_CHECKING:  # it imports asyncio
    from turnledger.adapters.providers.async_clients import AsyncClients

OutputT = TypeVar("OutputT")


def require(package: str, extra: str) -> None:
    """RuntimeError that says what to install, if a provider's package is not there."""
    try:
        found = find_spec(package) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise RuntimeError(
            f"The package {package!r} is not installed. Install it with: "
            f"pip install 'turnledger[{extra}]'"
        )


@dataclass(frozen=True)
class SdkCall:
    """A request as an SDK takes it, the same for its synchronous and its async client.

    Attributes:
        create: The client's method; awaited if the client is the async one.
        arguments: Its keyword arguments.
        answer: Assembles the pieces of a stream by `add` and `whole`; None if it is not streamed.
    """

    create: Callable[..., Any]
    arguments: dict[str, Any]
    answer: Any = None

    def send(self) -> Any:
        """Call the method, and return the whole answer; a stream is closed in any case."""
        came = self.create(**self.arguments)
        if self.answer is None:
            return came
        try:
            for piece in came:
                self.answer.add(piece)
        finally:
            close = getattr(came, "close", None)
            if close is not None:
                close()
        return self.answer.whole()

    async def send_async(self) -> Any:
        """The same with a method of the async client."""
        import asyncio  # it is there if this is awaited

        came = await self.create(**self.arguments)
        if self.answer is None:
            return came
        try:
            async for piece in came:
                self.answer.add(piece)
        finally:
            close = getattr(came, "close", None) or getattr(came, "aclose", None)
            if close is not None:
                # A cancel that comes now must not keep the connection open.
                await asyncio.shield(close())
        return self.answer.whole()


class ModelOptions(TypedDict, total=False):
    """Keyword arguments that every provider adapter takes.

    Attributes:
        tool_choice: "auto" (the default), "none", "required", or the name of a tool; a forced
            choice reverts to "auto" after the first accepted call.
        parallel_tools: How many calls of one turn may run at once; 1 by default.
        throttle: Retries after errors that pass.
        use_native_response_format: Have the provider enforce the output's schema; by default
            where the provider can.
        request_options: Fields that go into every request as they are, `{"temperature": 0}`.
        stream: Have text sent as it comes: `on_delta` and the bus get it.
        on_delta: Called with each piece of streamed text.
    """

    tool_choice: ToolChoice
    parallel_tools: int
    throttle: ThrottlePolicy | None
    use_native_response_format: bool
    request_options: Mapping[str, Any] | None
    stream: bool
    on_delta: Callable[[TextReceived], None] | None


class AdapterOptions(ModelOptions, total=False):
    """Keyword arguments of adapters over a provider's own SDK.

    Attributes:
        client: The SDK's client, or an object with the methods that the adapter calls.
        client_factory: Makes the client at the first request; by default the SDK's own class.
        client_kwargs: Arguments for `client_factory`.
    """

    client: Any
    client_factory: Callable[..., Any] | None
    client_kwargs: Mapping[str, Any] | None


@explain_methods()
class SdkAdapter(ProviderAdapter[OutputT]):
    """A provider that is reached through a client which is given, or made when it is needed.

    A client that this makes is closed by `close`, or at the end of a `with`. For runs of an event
    loop it makes the SDK's async client with the same arguments, one for each event loop, and
    closes it with that loop; a client that is given is synchronous, and called in a thread.
    """

    # The SDK's package; the extra that installs it is called like the adapter.
    package: ClassVar[str]

    def __init__(
        self,
        wire: WireFormat,
        *,
        model: str,
        client: Any = None,
        client_factory: Callable[..., Any] | None = None,
        client_kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[ModelOptions],
    ) -> None:
        if not model:
            raise InvalidInputError("Say which model: model='...'.")
        if client is not None and (client_factory is not None or client_kwargs is not None):
            raise InvalidInputError("Give a client, or how to make one, not both.")
        options.setdefault("use_native_response_format", True)
        super().__init__(model=model, **options)
        self.wire = wire
        self._client = client
        self._make = client_factory
        self._kwargs = dict(client_kwargs or {})
        self._is_ours = client is None
        self._async: AsyncClients | None = None
        self._lock = Lock()
        if client is None and client_factory is None:
            require(self.package, self.name)

    @abstractmethod
    def make_client(self, **kwargs: Any) -> Any:
        """The SDK's own client."""

    @abstractmethod
    def make_async_client(self, **kwargs: Any) -> Any:
        """The SDK's own client for asyncio."""

    @abstractmethod
    def call(self, client: Any, payload: dict[str, Any], sending: Sending) -> SdkCall:
        """A payload as a call of the client, of either one."""

    def streamed_error(self, error: Exception) -> Exception:
        """What an error means that was raised while an answer was streamed."""
        return error

    def send(self, payload: dict[str, Any], sending: Sending) -> Any:
        call = self.call(self.client, payload, sending)
        try:
            return call.send()
        except Exception as error:
            if call.answer is None or (meant := self.streamed_error(error)) is error:
                raise
            raise meant from error

    async def send_async(self, payload: dict[str, Any], sending: Sending) -> Any:
        call = self.call(await self._async_clients.of_this_loop(), payload, sending)
        try:
            return await call.send_async()
        except Exception as error:
            if call.answer is None or (meant := self.streamed_error(error)) is error:
                raise
            raise meant from error

    @property
    def sends_async(self) -> bool:
        """Not with a client that was given, nor with arguments for the synchronous one alone."""
        is_made_here = self._is_ours and self._make is None
        return is_made_here and super().sends_async and not _is_for_sync_clients(self._kwargs)

    @property
    def _async_clients(self) -> AsyncClients:
        with self._lock:
            if self._async is None:
                from turnledger.adapters.providers.async_clients import AsyncClients

                self._async = AsyncClients(lambda: self.make_async_client(**self._kwargs))
            return self._async

    @property
    def capabilities(self) -> Capabilities:
        return self.wire.capabilities

    @property
    def client(self) -> Any:
        """The client; it is made when it is first asked for."""
        with self._lock:
            if self._client is None:
                self._client = (self._make or self.make_client)(**self._kwargs)
            return self._client

    @staticmethod
    def limited(client: Any, timeout: float | None) -> Any:
        """The client with this timeout and no retries of its own: those are the loop's.

        They are recorded, and keep to the deadline. A client that can't be told is used as it is.
        """
        with_options = getattr(client, "with_options", None)
        if with_options is None:
            return client
        if timeout is None:
            return with_options(max_retries=0)
        return with_options(max_retries=0, timeout=timeout)

    def encode(self, request: Request) -> dict[str, Any]:
        return self.wire.encode(request)

    def decode(self, raw: Any) -> Reply:
        return self.wire.decode(raw)

    def advise(self, error: Exception) -> RetryAdvice:
        return advice_for(error)

    def close(self) -> None:
        """Close the clients that were made here; the adapter makes others if it is used again."""
        with self._lock:
            client, clients = (self._client if self._is_ours else None), self._async
            if client is not None:
                self._client = None
        if clients is not None:
            clients.close()
        close = getattr(client, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> SdkAdapter[OutputT]:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def _is_for_sync_clients(value: Any) -> bool:
    """Whether an argument, or a part of one, can't be shared with an async client.

    Functions that give a key or a token are awaited there, and HTTP clients are of another class.
    """
    if isinstance(value, Mapping):
        return any(_is_for_sync_clients(one) for one in value.values())
    return callable(value) or any(kind.__name__ == "Client" for kind in type(value).__mro__)

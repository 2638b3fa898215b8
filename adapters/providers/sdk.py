"""Base of the adapters over a provider's own SDK: a wire format, and a client behind it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from threading import Lock
from typing import Any, ClassVar, TypedDict, TypeVar, Unpack

from turnledger.adapters.providers.retry import advice_for
from turnledger.adapters.providers.wire import Capabilities, WireFormat
from turnledger.ledger import InvalidInputError
from turnledger.ledger.arguments import explain_methods
from turnledger.runtime import ProviderAdapter, Reply, Request, TextReceived, ThrottlePolicy
from turnledger.runtime.agent.models import RetryAdvice, ToolChoice

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


def whole_answer(stream: Any, answer: Any) -> Any:
    """Have `answer` assemble the pieces of a stream; the stream is closed in any case."""
    try:
        for piece in stream:
            answer.add(piece)
    finally:
        close = getattr(stream, "close", None)
        if close is not None:
            close()
    return answer.whole()


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

    A client that this makes is closed by `close`, or at the end of a `with`.
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
        self._lock = Lock()
        if client is None and client_factory is None:
            require(self.package, self.name)

    @abstractmethod
    def make_client(self, **kwargs: Any) -> Any:
        """The SDK's own client."""

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

    def limited(self, timeout: float | None) -> Any:
        """The client with this timeout and no retries of its own: those are the loop's.

        They are recorded, and keep to the deadline. A client that can't be told is used as it is.
        """
        client = self.client
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
        """Close the client, if it was made here; the adapter makes another if it is used again."""
        with self._lock:
            client = self._client if self._is_ours else None
            if client is not None:
                self._client = None
        close = getattr(client, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> SdkAdapter[OutputT]:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

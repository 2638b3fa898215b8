"""Server process: runs an ASGI application on one event loop until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.lifespan.on import LifespanOn

from turnledger.adapters.http.serving.connection import (
    LINGER_SECONDS,
    Connections,
    GuardedConnection,
    Quick,
)
from turnledger.adapters.http.serving.limits import EndStreams, LimitBodies
from turnledger.adapters.http.serving.listener import BACKLOG, Listener
from turnledger.adapters.http.serving.settings import Limits, Settings, TlsFiles
from turnledger.ledger import TurnledgerError
from turnledger.ledger.redaction.safe_logging import logger_of

log, uvicorn_log = logger_of("turnledger.http"), logger_of("uvicorn.error")
# Files that the process has open besides its connections: the store's, logs, pipes.
OTHER_FILES = 200


# Takes the function that stops the server.
OnReady = Callable[[Callable[[], None]], None]


class ServeError(TurnledgerError):
    """The server can't start: its TLS files or its application are at fault."""


def serve(
    app: ASGIApp,
    listener: Listener,
    settings: Settings,
    *,
    quick: Quick | None = None,
    on_ready: OnReady = lambda stop: None,
) -> None:
    """Serve an ASGI application until SIGTERM or SIGINT; return when it has stopped.

    Signals reach it in the main thread only. In another one it ends by `stop`.

    At a stop no connection is accepted any more, event streams are ended, requests under way
    are answered, and then the application's lifespan ends. A second signal ends the wait for
    requests.

    Args:
        app: The application; it is run on one event loop in this thread.
        listener: The socket, from `listen`. It is closed at the end.
        settings: TLS files, whether a proxy is in front, and the limits.
        quick: Answers plain requests in place of the application.
        on_ready: Called once requests are answered, with a function that stops the server as a
            signal does, from any thread.
    """
    with listener:
        tls = None if settings.tls is None else _tls_context(settings.tls)
        limits = _fit_open_files(settings.limits)
        streams = EndStreams(app)
        bodies = LimitBodies(streams, limits)
        config, shared = _config(bodies, settings), Connections(bodies, quick)
        asyncio.run(_run(config, shared, streams, listener, tls, on_ready))


def _config(app: ASGIApp, settings: Settings) -> Config:
    """uvicorn's settings: no log of requests, and no file or variable that changes them."""
    config = Config(
        app,
        lifespan="on",
        interface="asgi3",
        ws="none",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=settings.behind_proxy,
        forwarded_allow_ips="*",
        timeout_keep_alive=settings.limits.idle_seconds,  # type: ignore[arg-type]
        h11_max_incomplete_event_size=settings.limits.head_bytes,
    )
    config.load()
    return config


def _tls_context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(files.certificate, files.key)
    except OSError as error:  # SSLError is one
        raise ServeError(
            f"Can't use the TLS files {files.certificate} and {files.key}: {error}. Expected a "
            "certificate chain and its private key without a password, as PEM."
        ) from error
    context.set_alpn_protocols(["http/1.1"])
    return context


def _fit_open_files(limits: Limits) -> Limits:
    """Raise the process's limit of open files, or lower the number of connections to it."""
    wanted = limits.connections + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return replace(limits, connections=max(1, allowed - OTHER_FILES))


async def _run(
    config: Config,
    shared: Connections,
    streams: EndStreams,
    listener: Listener,
    tls: ssl.SSLContext | None,
    on_ready: OnReady,
) -> None:
    loop = asyncio.get_running_loop()
    lifespan = LifespanOn(config)
    await lifespan.startup()
    if lifespan.should_exit:
        raise ServeError("The application did not start; the log has the reason.")
    try:
        with _signals() as signals:
            server = await loop.create_server(
                lambda: GuardedConnection(config, shared, lifespan.state),
                sock=listener.socket,
                backlog=BACKLOG,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else shared.limits.head_seconds,
                ssl_shutdown_timeout=None if tls is None else LINGER_SECONDS,
            )
            try:
                on_ready(lambda: _stop(loop, signals))
                await signals.get()
            finally:
                server.close()
                await _finish(shared, streams, signals)
    finally:
        await lifespan.shutdown()


def _stop(loop: asyncio.AbstractEventLoop, signals: asyncio.Queue[int]) -> None:
    with suppress(RuntimeError):  # it has stopped already
        loop.call_soon_threadsafe(signals.put_nowait, signal.SIGTERM)


async def _finish(shared: Connections, streams: EndStreams, hurry: asyncio.Queue[int]) -> None:
    """Let what is under way end, within the time for it; then cut off what has not."""
    streams.end()
    for connection in shared.guarded():
        connection.shutdown()
    second_signal = asyncio.ensure_future(hurry.get())
    ended = asyncio.ensure_future(_all_closed(shared))
    await asyncio.wait(
        (second_signal, ended),
        timeout=shared.limits.stop_seconds,
        return_when=asyncio.FIRST_COMPLETED,
    )
    if shared.tasks:
        log.warning("Stopping: %d requests under way were cut off.", len(shared.tasks))
        uvicorn_log.setLevel(logging.CRITICAL)  # it would log each of them
    rest = [second_signal, ended, *shared.tasks]
    for task in rest:
        task.cancel()
    for connection in shared.guarded():
        connection.abort()
    await asyncio.wait(rest, timeout=LINGER_SECONDS)


async def _all_closed(shared: Connections) -> None:
    while shared.tasks or shared.connections:
        await asyncio.sleep(0.01)


@contextmanager
def _signals() -> Iterator[asyncio.Queue[int]]:
    """SIGTERM and SIGINT as they come; Python gives them to the main thread only."""
    came: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    is_main = threading.current_thread() is threading.main_thread()
    handled = (signal.SIGTERM, signal.SIGINT) if is_main else ()
    for number in handled:
        loop.add_signal_handler(number, came.put_nowait, number)
    try:
        yield came
    finally:
        for number in handled:
            loop.remove_signal_handler(number)

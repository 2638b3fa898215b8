"""A small ASGI application on the real server, as a process: what the server's tests talk to.

`python small_app.py '{"head_seconds": 1}'` prints its URL when it answers, and `stopped` when
its lifespan has ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from turnledger.adapters.http.serving.listener import listen
from turnledger.adapters.http.serving.server import serve
from turnledger.adapters.http.serving.settings import Limits, Settings, TlsFiles

LONG = 64 * 1024 * 1024
OPEN = {"streams": 0, "bodies": 0}


async def app(scope: Any, receive: Any, send: Any) -> None:
    """`/healthz`, `/body` reads a body, `/unread` does not, `/stream` and `/flood` never end."""
    if scope["type"] == "lifespan":
        return await lifespan(receive, send)
    match scope["path"]:
        case "/healthz":
            return await answer(send, json.dumps(OPEN).encode())
        case "/body":
            return await read_body(receive, send)
        case "/unread":
            return await answer(send, b"answered")
        case "/long":
            return await answer(send, bytes(LONG))
        case "/stream":
            return await stream(receive, send, b": still here\n\n", pause=0.1)
        case "/flood":
            return await stream(receive, send, b":" + b"x" * 65536 + b"\n\n", pause=0.0)
        case "/asleep":
            return await asyncio.sleep(3600)
        case "/scheme":
            return await answer(send, scope["scheme"].encode())
    return await answer(send, b"no such path", status=404)


async def lifespan(receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    print("stopped", flush=True)
    await send({"type": "lifespan.shutdown.complete"})


async def answer(send: Any, body: bytes, status: int = 200) -> None:
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def read_body(receive: Any, send: Any) -> None:
    OPEN["bodies"] += 1
    try:
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size += len(message["body"])
            more = message["more_body"]
        await answer(send, str(size).encode())
    finally:
        OPEN["bodies"] -= 1


async def stream(receive: Any, send: Any, line: bytes, pause: float) -> None:
    OPEN["streams"] += 1
    gone = asyncio.create_task(disconnected(receive))
    try:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while not gone.done():
            await send({"type": "http.response.body", "body": line, "more_body": True})
            await asyncio.wait((gone,), timeout=pause)
    finally:
        OPEN["streams"] -= 1
        gone.cancel()


async def disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def main() -> None:
    given = json.loads(sys.argv[1])
    tls = given.pop("tls", None)
    settings = Settings(
        host=given.pop("host", "127.0.0.1"),
        port=given.pop("port", 0),
        behind_proxy=given.pop("behind_proxy", False),
        tls=None if tls is None else TlsFiles(*tls),
        limits=Limits(**given),
    )
    with listen(settings) as listener:
        serve(app, listener, settings, on_ready=lambda stop: print(listener.url, flush=True))


if __name__ == "__main__":
    main()

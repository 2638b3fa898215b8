"""Listening socket of the server, and the rule for listening beyond loopback."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from ipaddress import ip_address

from turnledger.adapters.http.serving.settings import Settings, url_host
from turnledger.ledger import TurnledgerError

BACKLOG = 1024


class ListenError(TurnledgerError):
    """The server can't listen on this host and port."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        self.host = host
        self.port = port
        self.reason = reason
        super().__init__(f"Can't listen on {url_host(host)}:{port}: {reason}")


@dataclass(frozen=True, slots=True)
class Listener:
    """Bound socket, and the URL that clients reach it by. Closed at the end of a `with`."""

    socket: socket.socket
    url: str

    @property
    def port(self) -> int:
        """The port, also where a free one was asked for."""
        number: int = self.socket.getsockname()[1]
        return number

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def listen(settings: Settings) -> Listener:
    """Bind the socket of a server; ListenError says why it can't be, and what to do."""
    host, port = settings.host, settings.port
    if not 0 <= port <= 65535:
        raise ListenError(host, port, "expected a port from 0 to 65535.")
    family, address = _resolve(host, port)
    if not (settings.tls or settings.behind_proxy) and not ip_address(address[0]).is_loopback:
        raise ListenError(
            host,
            port,
            "beyond loopback, tokens and events would cross the network in clear text. Give "
            "--tls-cert and --tls-key, or --behind-proxy if a proxy in front terminates TLS.",
        )
    # asyncio sets TCP_NODELAY only on sockets that name their protocol. Without it the body of an
    # answer, written after its head, waits for the client's delayed acknowledgement: 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # A restart need not wait for the old server's connections; a second server is refused.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise ListenError(host, port, _reason(error, port)) from error
    bound.setblocking(False)
    return Listener(bound, f"{settings.scheme}://{settings.called}:{bound.getsockname()[1]}")


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """The first address of a host."""
    name = host.strip("[]")
    try:
        found = socket.getaddrinfo(
            name or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        reason = f"the host has no address here ({error}). Give --host an address of this machine."
        raise ListenError(host, port, reason) from error
    family, _, _, _, address = found[0]
    return family, address  # type: ignore[return-value]


def _reason(error: OSError, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return "another process listens there. Stop it, or give another --port (0: a free one)."
        case errno.EACCES:
            return f"the system does not allow port {port} to this user. Give a --port above 1023."
        case errno.EADDRNOTAVAIL:
            return "this machine does not have that address. Give --host one that it has."
        case _:
            return f"{os.strerror(error.errno or 0)}."

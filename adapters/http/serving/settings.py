"""Settings of the HTTP server: address, TLS, allowed hosts and origins, limits."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path

from turnledger.ledger import InvalidInputError

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8321


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the HTTP server. Sizes are in bytes, times in seconds.

    Args:
        head_bytes: Request line and headers of one request; 431 beyond.
        head_seconds: From the first byte of a request, or from connecting, to the end of its
            headers; 408 beyond, or just closed if nothing came. Also for a TLS handshake.
        body_bytes: Body of one request; 413 beyond.
        bodies_bytes: Bodies of all requests under way together; 503 beyond.
        body_seconds: Time of a body, plus its size by `body_rate`; 408 beyond.
        body_rate: Bytes a second that a body must come with once `body_seconds` are over.
        write_seconds: A client that reads nothing of an answer for so long is cut off.
        idle_seconds: A connection between two requests is closed after this.
        stop_seconds: At a stop, requests under way have this long to be answered.
        connections: Open connections. Beyond, the one that has waited longest for its request's
            head, or for the small body of an append, is closed; if none waits, the new one is
            answered with 503.
    """

    head_bytes: int = 32 * 1024
    head_seconds: float = 10.0
    body_bytes: int = 64 * 1024 * 1024
    bodies_bytes: int = 256 * 1024 * 1024
    body_seconds: float = 30.0
    body_rate: int = 64 * 1024
    write_seconds: float = 30.0
    idle_seconds: float = 60.0
    stop_seconds: float = 10.0
    connections: int = 2000

    def __post_init__(self) -> None:
        for one in fields(self):
            found = getattr(self, one.name)
            if isinstance(found, bool) or not isinstance(found, int | float) or not found > 0:
                raise InvalidInputError(f"Limits({one.name}=...): expected a number above 0.")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificate chain and private key of the server, both PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the HTTP server.

    Args:
        host: Name or address to listen on. Beyond loopback only with `tls` or `behind_proxy`.
        port: TCP port; 0 for a free one.
        tls: Certificate and key for HTTPS.
        behind_proxy: A reverse proxy is in front: its X-Forwarded-For and X-Forwarded-Proto
            headers are trusted in every request.
        allowed_hosts: Further names that requests may have in their Host header.
        allowed_origins: Origins of pages on other hosts that may call the API (CORS).
        limits: Limits of the server.
    """

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    tls: TlsFiles | None = None
    behind_proxy: bool = False
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)

    @property
    def host_names(self) -> tuple[str, ...]:
        """Names that requests may have in their Host header, beside those of loopback.

        The name or address to listen on is one, unless it stands for all addresses.
        """
        listened = () if _is_unspecified(self.host) else (self.host.strip("[]"),)
        return (*listened, *(name.strip("[]") for name in self.allowed_hosts))

    @property
    def called(self) -> str:
        """The name by which a browser on this machine reaches the server."""
        if not _is_unspecified(self.host):
            return url_host(self.host)
        return url_host(self.allowed_hosts[0]) if self.allowed_hosts else "localhost"

    @property
    def scheme(self) -> str:
        """`https` with TLS files, else `http`."""
        return "http" if self.tls is None else "https"


def url_host(host: str) -> str:
    """A host as it stands in a URL or a Host header: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _is_unspecified(host: str) -> bool:
    """Whether a host stands for all addresses of the machine, as 0.0.0.0 and :: do."""
    try:
        return host == "" or ip_address(host).is_unspecified
    except ValueError:
        return False

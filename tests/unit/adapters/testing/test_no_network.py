"""No network for a while: nothing gets out by way of Python, and everything is as it was after."""

from __future__ import annotations

import asyncio
import socket
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from threading import Thread, get_ident
from typing import Any

import pytest

from turnledger.adapters.testing.no_network import NetworkRefusedError, no_network


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    """Where somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()


def state_of_the_module() -> dict[str, Any]:
    return {**vars(socket), **{f"socket.{k}": v for k, v in vars(socket.socket).items()}}


def a_connect(address: tuple[str, int]) -> None:
    with socket.socket() as one:
        one.connect(address)


def a_connect_ex(address: tuple[str, int]) -> None:
    with socket.socket() as one:
        assert one.connect_ex(address) == 0


def a_tls_connect(address: tuple[str, int]) -> None:
    with ssl.create_default_context().wrap_socket(
        socket.socket(), server_hostname="localhost"
    ) as one:
        one.connect(address)


def a_connection(address: tuple[str, int]) -> None:
    socket.create_connection(address).close()


def a_url(address: tuple[str, int]) -> None:
    urllib.request.urlopen(f"http://{address[0]}:{address[1]}/")


def an_asyncio_connection(address: tuple[str, int]) -> None:
    async def connect() -> None:
        _, writer = await asyncio.open_connection(*address)
        writer.close()

    asyncio.run(connect())


def a_datagram(address: tuple[str, int]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.sendto(b"secret", address)


def a_message(address: tuple[str, int]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.sendmsg([b"secret"], [], 0, address)


def a_name(address: tuple[str, int]) -> None:
    socket.gethostbyname("localhost")


WAYS: list[Callable[[tuple[str, int]], None]] = [
    a_connect,
    a_connect_ex,
    a_tls_connect,
    a_connection,
    a_url,
    an_asyncio_connection,
    a_datagram,
    a_message,
    a_name,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_whoever_asks_is_refused_and_named(
    way: Callable[[tuple[str, int]], None], address: tuple[str, int]
) -> None:
    """By whatever way; what was wanted and the line that wanted it are told, and no content."""
    before = state_of_the_module()
    with no_network() as attempts, pytest.raises(NetworkRefusedError) as caught:
        way(address)
    assert state_of_the_module() == before
    assert attempts
    assert "There is no network while a run is replayed" in str(caught.value)
    assert "secret" not in str(caught.value)
    if way is not an_asyncio_connection:  # which asks for the name in a thread of its own
        assert "test_no_network.py:" in attempts[0].place
        assert attempts[0].place.endswith(f"in {way.__name__}")
        assert attempts[0].thread == get_ident()


def test_afterwards_the_network_is_there(address: tuple[str, int]) -> None:
    """Also after an error, and by way of a function that somebody kept."""
    with no_network():
        kept = socket.create_connection
    kept(address).close()
    with pytest.raises(ZeroDivisionError), no_network():
        1 / 0  # noqa: B018
    a_connect(address)


def test_it_may_be_nested_and_overlap(address: tuple[str, int]) -> None:
    """The last one who goes takes the guards away; each has its own list."""
    first, second = no_network(), no_network()
    before = state_of_the_module()
    outer = first.__enter__()
    inner = second.__enter__()
    first.__exit__(None, None, None)
    with pytest.raises(NetworkRefusedError):
        a_connect(address)
    second.__exit__(None, None, None)
    assert (len(outer), len(inner)) == (0, 1)
    assert state_of_the_module() == before
    a_connect(address)


def test_other_threads_are_refused_too(address: tuple[str, int]) -> None:
    """Code that is run again does not get out by starting a thread."""
    errors: list[Exception] = []

    def work() -> None:
        try:
            a_connect(address)
        except NetworkRefusedError as error:
            errors.append(error)

    with no_network() as attempts:
        thread = Thread(target=work)
        thread.start()
        thread.join()
    assert len(errors) == 1
    assert attempts[0].thread != get_ident()


def test_what_is_connected_already_goes_on(address: tuple[str, int]) -> None:
    """Pairs, event loops and open connections are nobody's way out."""
    with socket.create_connection(address) as connected, no_network() as attempts:
        connected.send(b"x")
        connected.sendmsg([b"x"])
        for one in socket.socketpair():
            one.close()
        asyncio.run(asyncio.sleep(0))
    assert not attempts


def test_a_class_in_the_place_of_sockets_is_guarded_with_the_one_below(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others patch `socket.socket` as well: whichever of the two is used, it is refused."""
    real = socket.socket

    class Other(real):  # type: ignore[misc, valid-type]
        def connect(self, address: Any) -> None:
            super().connect(address)

    monkeypatch.setattr(socket, "socket", Other)
    for kind in (real, Other):
        with no_network(), kind() as one, pytest.raises(NetworkRefusedError):
            one.connect(address)
    with Other() as one:
        one.connect(address)

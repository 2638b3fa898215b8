"""Network guard: while it is on, connecting or resolving a name raises NetworkRefusedError.

It patches Python's `socket` module, for every thread of the process, and restores it. Sockets of
C libraries (libpq, gRPC) and of other processes are not guarded.
"""

from __future__ import annotations

import os
import socket
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import Lock, get_ident
from typing import Any, NamedTuple

from turnledger.ledger import TurnledgerError

# What reaches another host or process: methods of a socket, and functions of the module.
_METHODS = ("connect", "connect_ex", "sendto", "sendmsg")
_FUNCTIONS = (
    "create_connection",
    "getaddrinfo",
    "gethostbyaddr",
    "gethostbyname",
    "gethostbyname_ex",
    "getnameinfo",
)
# sendmsg(self, buffers, ancdata, flags, address): without one it goes where the socket leads.
_ADDRESS_OF_SENDMSG = 4
_NOT_THERE: Any = object()


class NetworkRefusedError(TurnledgerError):
    """The network was used while the guard was on."""


class Attempt(NamedTuple):
    """One refused use of the network: what, where in the code, in which thread."""

    wanted: str
    place: str
    thread: int

    def __str__(self) -> str:
        return f"{self.wanted} at {self.place}"


_lock = Lock()
_watching: list[list[Attempt]] = []
# What stood where a guard stands now.
_before: list[tuple[Any, str, Any]] = []


@contextmanager
def no_network() -> Iterator[list[Attempt]]:
    """Refuse the network; what was refused meanwhile is in the list. It may be nested."""
    attempts: list[Attempt] = []
    with _lock:
        if not _watching:
            _put_guards()
        _watching.append(attempts)
    try:
        yield attempts
    finally:
        with _lock:
            # By identity: two lists with the same in them are equal.
            _watching[:] = [others for others in _watching if others is not attempts]
            if not _watching:
                _take_guards_away()


def _put_guards() -> None:
    # Others may have put a class of their own in the place of `socket.socket`.
    kinds = [k for k in socket.socket.__mro__ if k.__module__ not in ("_socket", "builtins")]
    places: list[tuple[Any, str]] = [
        (kind, name) for kind in kinds for name in _METHODS if hasattr(kind, name)
    ]
    places += [(socket, name) for name in _FUNCTIONS if hasattr(socket, name)]
    for owner, name in places:
        _before.append((owner, name, vars(owner).get(name, _NOT_THERE)))
        setattr(owner, name, _guarded(name, getattr(owner, name)))


def _take_guards_away() -> None:
    while _before:
        owner, name, was = _before.pop()
        if was is _NOT_THERE:
            delattr(owner, name)
        else:
            setattr(owner, name, was)


def _guarded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def guard(*args: Any, **kwargs: Any) -> Any:
        # Code may have kept this function, and call it when the guards are gone.
        if not _watching or (name == "sendmsg" and not _has_address(args)):
            return original(*args, **kwargs)
        attempt = Attempt(_wanted(name, args), _place(), get_ident())
        for attempts in list(_watching):
            attempts.append(attempt)
        raise NetworkRefusedError(f"There is no network while a run is replayed: {attempt}.")

    return guard


def _has_address(args: tuple[Any, ...]) -> bool:
    return len(args) > _ADDRESS_OF_SENDMSG and args[_ADDRESS_OF_SENDMSG] is not None


def _wanted(name: str, args: tuple[Any, ...]) -> str:
    """The call, without what is sent: that may be secret, and long."""
    given = args[1:] if name in _METHODS else args
    if name in ("sendto", "sendmsg"):
        given = given[-1:]
    return f"{name}({', '.join(map(repr, given[:2]))})"


_LIBRARIES = tuple(
    os.path.join(sysconfig.get_paths()[name], "") for name in ("stdlib", "purelib", "platlib")
)


def _place() -> str:
    """The line of the user's own code that it comes from, as far as that can be seen."""
    frame = innermost = sys._getframe(2)
    while frame.f_back is not None and _is_a_librarys(frame.f_code.co_filename):
        frame = frame.f_back
    if _is_a_librarys(frame.f_code.co_filename):
        frame = innermost
    code = frame.f_code
    return f"{os.path.relpath(code.co_filename)}:{frame.f_lineno}, in {code.co_name}"


def _is_a_librarys(filename: str) -> bool:
    return filename.startswith(("<", *_LIBRARIES))

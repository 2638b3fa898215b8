"""Children of a driver: forked warm, talking through a pipe, always killed and reaped.

The driver has one thread and holds no ledger, so that a fork costs a millisecond and
copies nobody's lock. A child opens its own ledger, and says what it did line by line;
what it had said before a SIGKILL is still in the pipe after it.
"""

from __future__ import annotations

import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec

Message = list[Any]


class ChildFailedError(Exception):
    """A child met an error that the scenario did not expect."""


class Voice:
    """A child's end: what it says to the driver, and the orders that it hears."""

    def __init__(self, says: int, hears: int) -> None:
        self._says = says
        self._hears = hears

    def say(self, *message: Any) -> None:
        line = msgspec.json.encode(message) + b"\n"
        while line:
            line = line[os.write(self._says, line) :]

    def hear(self) -> str:
        """Wait for the driver's next order, one letter; empty if the driver is gone."""
        return os.read(self._hears, 1).decode()

    def has_order(self) -> bool:
        return bool(select.select([self._hears], [], [], 0)[0])


class Child:
    """The driver's end of a child."""

    def __init__(self, name: str, pid: int, hears: int, says: int) -> None:
        self.name = name
        self.pid = pid
        self.hears = hears
        self.says = says
        self.ended = False
        self.reaped = False
        self._unfinished = b""

    def read(self) -> list[Message]:
        """What was said since; a line that a SIGKILL cut off was never said."""
        chunk = os.read(self.hears, 1 << 16)
        if not chunk:
            self.ended = True
            return []
        *lines, self._unfinished = (self._unfinished + chunk).split(b"\n")
        return [msgspec.json.decode(line) for line in lines]

    def order(self, letter: str) -> None:
        os.write(self.says, letter.encode())


class Crew:
    """All children of a scenario, and the time that it may take."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._seconds = seconds
        self.children: list[Child] = []
        self._heard: dict[Child, list[Message]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for child in list(self.children):
            self.kill(child)

    def start(self, name: str, work: Callable[..., None], *args: Any) -> Child:
        """Fork a child that does `work(voice, *args)` and ends."""
        hears, child_says = os.pipe()
        child_hears, says = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(hears)
            os.close(says)
            _be_child(Voice(child_says, child_hears), self._left(), work, args)
        os.close(child_says)
        os.close(child_hears)
        child = Child(name, pid, hears, says)
        self.children.append(child)
        self._heard[child] = []
        return child

    def listen(self, at_most: float | None = None) -> list[tuple[Child, Message]]:
        """Wait until a child says something or ends, or for `at_most` seconds."""
        if not any(self._heard.values()):
            self._hear(at_most)
        said = [(child, message) for child, heard in self._heard.items() for message in heard]
        for heard in self._heard.values():
            heard.clear()
        return said

    def _hear(self, at_most: float | None = None) -> None:
        open_ones = {child.hears: child for child in self.children if not child.ended}
        if not open_ones:
            raise ChildFailedError("All children have ended, and more was expected of them")
        left = self._left()
        if left <= 0:
            names = ", ".join(child.name for child in open_ones.values())
            raise TimeoutError(f"After {self._seconds} s still at work: {names}")
        timeout = left if at_most is None else min(at_most, left)
        for fd in select.select(list(open_ones), [], [], timeout)[0]:
            child = open_ones[fd]
            for message in child.read():
                if message[0] == "error":
                    raise ChildFailedError(f"{child.name}: {message[1]}")
                self._heard[child].append(message)

    def expect(self, child: Child, word: str) -> Message:
        """The child's next message, which must begin with this word."""
        while not self._heard[child]:
            if child.ended:
                raise ChildFailedError(f"{child.name} ended, but was to say {word!r}")
            self._hear()
        message = self._heard[child].pop(0)
        if message[0] != word:
            raise ChildFailedError(f"{child.name} was to say {word!r} and said {message}")
        return message[1:]

    def stop(self, child: Child) -> None:
        """SIGSTOP; returns when the child has stopped."""
        os.kill(child.pid, signal.SIGSTOP)
        self.await_stop(child)

    def await_stop(self, child: Child) -> None:
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            child.reaped = True
            raise ChildFailedError(f"{child.name} ended instead of stopping: {status}")

    def resume(self, child: Child) -> None:
        os.kill(child.pid, signal.SIGCONT)

    def strike(self, *children: Child) -> None:
        """SIGKILL for all of these within microseconds; `kill` then reaps each of them."""
        for child in children:
            if not child.reaped:
                os.kill(child.pid, signal.SIGKILL)

    def kill(self, child: Child) -> list[Message]:
        """SIGKILL and reap; what the child had said until then, and nobody had read."""
        self.strike(child)
        if not child.reaped:
            os.waitpid(child.pid, 0)
            child.reaped = True
        last_words = self._heard.pop(child)
        while not child.ended:
            last_words += child.read()
        self._forget(child)
        return last_words

    def join(self, *children: Child) -> list[tuple[Child, Message]]:
        """Wait until these have ended well; everything that they said meanwhile."""
        while not all(child.ended for child in children):
            self._hear()
        said: list[tuple[Child, Message]] = []
        for child in children:
            _, status = os.waitpid(child.pid, 0)
            child.reaped = True
            said += [(child, message) for message in self._heard.pop(child)]
            self._forget(child)
            if status != 0:
                raise ChildFailedError(f"{child.name} ended with status {status}")
        return said

    def _forget(self, child: Child) -> None:
        os.close(child.hears)
        os.close(child.says)
        self.children.remove(child)

    def _left(self) -> float:
        return self._deadline - time.monotonic()


def _be_child(voice: Voice, seconds: float, work: Callable[..., None], args: Sequence[Any]) -> None:
    status = 1
    try:
        # However the driver ends: no child outlives its scenario.
        signal.alarm(max(1, int(seconds) + 5))
        work(voice, *args)
        status = 0
    except BaseException:
        voice.say("error", traceback.format_exc())
    finally:
        os._exit(status)

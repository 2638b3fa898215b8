"""eventsourcing: an aggregate of its own, saved by its `Application` after each message.

The aggregate is kept between saves, as a program does that holds a conversation: its pages get it
from the repository for each command, which costs the whole history. It has no tools and no agent.
SQLite: journal_mode=WAL, and SQLite's default of synchronous=FULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

from benchmarks.peers.peer import NextText, Peer


class Conversation(Aggregate):
    """Messages with a role."""

    @event("Begun")
    def __init__(self, name: str) -> None:
        self.name = name
        self.messages: list[tuple[str, str]] = []

    @staticmethod
    def create_id(name: str) -> UUID:
        return uuid5(NAMESPACE_URL, f"/conversations/{name}")

    @event("Said")
    def say(self, role: str, text: str) -> None:
        self.messages.append((role, text))


class EventSourcing(Peer):
    """An application on SQLite."""

    def begin(self, many: Sequence[str]) -> None:
        conversation = Conversation(name="one")
        for text in many:
            _say(conversation, text)
        self._application().save(conversation)

    def _application(self) -> Application[UUID]:
        return Application(
            env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": self.where}
        )

    def go_on(self, next_text: NextText) -> None:
        self._open = self._application()
        conversation = self._get()
        while True:
            _say(conversation, next_text())
            self._open.save(conversation)

    def _get(self) -> Conversation:
        got: Any = self._open.repository.get(Conversation.create_id("one"))
        return got  # type: ignore[no-any-return]

    def load(self) -> Sequence[object]:
        return self._get().messages

    def pay(self, tool: Callable[[], str]) -> None:
        raise NotImplementedError

    def recover(self, tool: Callable[[], str]) -> str:
        raise NotImplementedError


def _say(conversation: Conversation, text: str) -> None:
    conversation.say("assistant" if len(conversation.messages) % 2 else "user", text)

"""Message writer: the turns of a conversation as `MessageAppended` events, numbered.

Pure; ids and the moment are handed in. An import writes a whole conversation with one, a mirror of
another program's session goes on from the last number that is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from turnledger.ledger import InnerMessage, MessageAppended
from turnledger.projections import ChatTurn
from turnledger.projections.history.message_fields import turn_fields


class MessageWriter:
    """Writes turns as messages of one evaluation.

    Args:
        evaluation_id: The evaluation.
        moment: When all of it was said.
        message_id: Gives the id of the message with a number.
        sequence: The number of the next message.
        turn: How many replies of the model there are already.
        prompt_ns: The namespace of the prompt.
        prompt_key: The key of the prompt.
    """

    def __init__(
        self,
        evaluation_id: str,
        moment: datetime,
        message_id: Callable[[int], UUID],
        *,
        sequence: int = 0,
        turn: int = 0,
        prompt_ns: str = "",
        prompt_key: str = "",
    ) -> None:
        self._message_id = message_id
        self._same: dict[str, Any] = {
            "evaluation_id": evaluation_id,
            "created_at": moment,
            "prompt_ns": prompt_ns,
            "prompt_key": prompt_key,
        }
        self._names: dict[str, str] = {}
        self.evaluation_id = evaluation_id
        self.sequence = sequence
        self.turn = turn

    def system(self, text: str) -> MessageAppended:
        """The system text."""
        return self._message("system", content=text)

    def write(self, turn: ChatTurn, *, goes_on: bool = False) -> Iterator[MessageAppended]:
        """The messages of one turn of the user or the assistant.

        Args:
            turn: The turn.
            goes_on: It is more of the model's last reply.
        """
        self.turn += turn.role == "assistant" and not goes_on
        for fields in turn_fields(turn, self._names):
            yield self._message(**fields)

    def _message(self, role: Any, **more: Any) -> MessageAppended:
        message = InnerMessage(
            role=role,
            sequence=self.sequence,
            turn=self.turn,
            message_id=self._message_id(self.sequence),
            **self._same,
            **more,
        )
        self.sequence += 1
        return MessageAppended(message=message)

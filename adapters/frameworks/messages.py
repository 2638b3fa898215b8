"""Message writer: turns of a conversation as `MessageAppended` events, numbered.

Ids and the moment are handed in. A mirror of another program's conversation goes on from the last
number that is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from uuid import UUID

from turnledger.ledger import InnerMessage, MessageAppended
from turnledger.projections import ChatTurn
from turnledger.projections.history.message_fields import turn_fields


class MessageWriter:
    """Writes turns as messages of one evaluation.

    Args:
        evaluation_id: The evaluation.
        moment: When it was said.
        message_id: Gives the id of the message with a number.
        sequence: The number of the next message.
        turn: How many replies of the model there are already.
    """

    def __init__(
        self,
        evaluation_id: str,
        moment: datetime,
        message_id: Callable[[int], UUID],
        *,
        sequence: int = 0,
        turn: int = 0,
    ) -> None:
        self.evaluation_id = evaluation_id
        self.sequence = sequence
        self.turn = turn
        self._moment = moment
        self._message_id = message_id
        self._names: dict[str, str] = {}

    def write(self, turn: ChatTurn, *, goes_on: bool = False) -> Iterator[MessageAppended]:
        """The messages of one turn.

        Args:
            turn: The turn.
            goes_on: It is more of the model's last reply.
        """
        self.turn += turn.role == "assistant" and not goes_on
        for fields in turn_fields(turn, self._names):
            message = InnerMessage(
                **fields,
                evaluation_id=self.evaluation_id,
                sequence=self.sequence,
                turn=self.turn,
                created_at=self._moment,
                message_id=self._message_id(self.sequence),
            )
            self.sequence += 1
            yield MessageAppended(message=message)

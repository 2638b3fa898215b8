"""Names of runs: a text of the caller's that stands for a run id, the same in every ledger."""

from __future__ import annotations

from uuid import UUID, uuid5

from turnledger.ledger.arguments import check_arguments
from turnledger.ledger.errors import InvalidInputError, short_repr

# The tag under which a run has its name.
NAME_TAG = "name"
# Tag of forks that a replay with live parts made; its value names the live parts.
LIVE_TAG = "turnledger.live"
# Tag of a run that optimizes a prompt as a step of another run, whose id is the value.
SERVES_TAG = "turnledger.serves"
# Runs with one of these are never taken from the queue: recovering the first would make all of
# it live, and the recovery of the run that it serves goes on with the second.
UNQUEUED_TAGS = (LIVE_TAG, SERVES_TAG)
_MOST_CHARACTERS = 512
# The namespace of the ids of named runs; permanent.
_NAMES = UUID("5d0c4c4b-9a3f-5e0e-8d4b-0c1f4b8f2a77")


@check_arguments
def run_id_for(name: str) -> UUID:
    """The id of the run with this name: "order-17", a thread's or a session's id.

    A name that is a UUID is an id already, and stands for itself.
    """
    if not name or len(name) > _MOST_CHARACTERS or "\x00" in name:
        raise InvalidInputError(
            f"Invalid run name {short_repr(name)}: expected 1 to {_MOST_CHARACTERS} characters, "
            "without NUL."
        )
    try:
        return UUID(name)
    except ValueError:
        pass
    try:
        return uuid5(_NAMES, name)
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"Invalid run name: it is not Unicode text: {error}.") from None

"""`TurnledgerSessionService`: the sessions of Google ADK as runs of a ledger.

A session is a run: each event is a custom event with the event's JSON as it is, and the messages
in it stand beside it. The state of an app, and of a user of it, is a run of its own, which an
event's changes are appended to in the event's transaction. Deleting marks a run; its events stay.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote
from uuid import UUID, uuid5

from turnledger.adapters.frameworks.adk.events import (
    Scopes,
    by_scope,
    event_json,
    lasting_parts,
    message_events,
    plain_state,
)
from turnledger.adapters.frameworks.packages import framework
from turnledger.adapters.frameworks.sessions import (
    AnyLedger,
    AsItIs,
    SessionLedger,
    append_together,
    end_session,
    entry_of,
    recorded_ids,
    retried,
    session_run,
    stored_folds,
)
from turnledger.ledger import (
    CustomEvent,
    Draft,
    Ledger,
    RunStarted,
)
from turnledger.ledger import Event as LedgerEvent
from turnledger.ledger.runs.append import Entry
from turnledger.ledger.runs.names import NAME_TAG
from turnledger.projections.digests import canonical
from turnledger.runtime.steps import Run, StepSpec, aperform, current_run, current_scope

with framework("google.adk", extra="adk", integration="turnledger.adk"):
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events import Event
    from google.adk.sessions import BaseSessionService, Session, State
    from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse

KIND, STATE_KIND = "adk.session", "adk.state"
EVENT, DELTA = "adk.event", "adk.state"
APP_TAG, USER_TAG, SESSION_TAG = "adk.app", "adk.user", "adk.session"
# Derived data: the state of each app, user and session.
STATES = "adk.states"
_MEMORY = "turnledger.adk.appends"
_LONGEST_NAME = 200
T = TypeVar("T")


class SessionKey(NamedTuple):
    """A session's app, user and id."""

    app_name: str
    user_id: str
    session_id: str

    @property
    def app(self) -> str:
        """The name of the run that holds the app's state."""
        return f"adk/{quote(self.app_name, safe='')}"

    @property
    def user(self) -> str:
        """The name of the run that holds the user's state."""
        return f"{self.app}/{quote(self.user_id, safe='')}"

    @property
    def session(self) -> str:
        """The name of the session's run."""
        return f"{self.user}/{quote(self.session_id, safe='')}"


class TurnledgerSessionService(BaseSessionService):
    """A session service of Google ADK over a ledger.

        runner = Runner(agent=agent, app_name="shop",
                        session_service=TurnledgerSessionService("sessions.db"))

    Several services and processes may use one ledger.

    Args:
        ledger: An open ledger, or the path or URL of one. An event that the ledger's redactor
            would change is refused (RedactedStateError): the model would be sent another text. With
            the redactor's `on_redacted="warn"` it is recorded redacted.
    """

    def __init__(self, ledger: AnyLedger) -> None:
        self._ledger = SessionLedger(ledger)

    def close(self) -> None:
        """Close the service, and its ledger if the service opened it."""
        self._ledger.close()

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session; AlreadyExistsError if there is one of that id.

        Args:
            app_name: The app.
            user_id: The user.
            state: The session's first state; "app:" and "user:" keys are the app's and user's.
            session_id: The session's id; by default a new one.
        """

        given, plain = session_id.strip() if session_id else "", plain_state(state or {})

        def work(ledger: Ledger, step: Run | None) -> dict[str, Any]:
            key = SessionKey(app_name, user_id, given or ledger.clock.new_id())
            retried(lambda: _create(ledger, key, plain, _id_of(step)))
            return {"id": key.session_id, "at": _heads(ledger, key)}

        made = await self._do(f"create {given}".strip(), plain, work)
        key = SessionKey(app_name, user_id, made["id"])
        found = await self._ledger.call(lambda ledger: _load(ledger, key, None, made["at"]))
        assert found is not None
        return found

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """A session with its events and its state; None if there is none.

        Args:
            app_name: The app.
            user_id: The user.
            session_id: The session.
            config: Which of the events.
        """
        key = SessionKey(app_name, user_id, session_id.strip())
        # In a run what is recorded is the versions that were read, however long the session is.
        heads = await self._do(f"get {key.session_id}", None, lambda ledger, _: _heads(ledger, key))
        return await self._ledger.call(lambda ledger: _load(ledger, key, config, heads))

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """The sessions of a user, or of all users, without events; the last updated is last."""
        return await self._ledger.call(lambda ledger: _list(ledger, app_name, user_id))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session. Its events stay in the ledger."""

        def work(ledger: Ledger, step: Run | None) -> None:
            key = SessionKey(app_name, user_id, session_id.strip())
            run_id, version = session_run(ledger, key.session, KIND)
            if version:
                end_session(ledger, run_id)

        await self._do(f"delete {session_id}", None, work)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """The state of a user, its keys without "user:"."""
        name = SessionKey(app_name, user_id, "").user
        return await self._ledger.call(lambda ledger: _state(ledger, name))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Record an event, and add it to the session; one that is recorded already is not.

        Args:
            session: The session, which is changed when the event is on disk.
            event: The event; a partial one is for display only, and not recorded.
        """
        if event.partial:
            return event
        key = SessionKey(session.app_name, session.user_id, session.id)
        said = {"author": event.author, **lasting_parts(event)}
        is_new = await self._do(
            f"append {key.session_id}",
            said,
            lambda ledger, step: retried(lambda: _append(ledger, key, event, _id_of(step))),
            key=_step_key(said),
        )
        if is_new:
            await super().append_event(session=session, event=event)
            session.last_update_time = event.timestamp
        return event

    async def _do(
        self,
        name: str,
        given: Any,
        work: Callable[[Ledger, Run | None], T],
        *,
        key: str | None = None,
    ) -> T:
        """Do something with a session.

        Inside of a run it is a step: resumed code reads what was read, and appends nothing twice.

        Args:
            name: What is done.
            given: What it is done with, JSON.
            work: Does it, and gives JSON.
            key: The key of the step; by default its ordinal.
        """
        if current_scope() is None:
            return await self._ledger.call(lambda ledger: work(ledger, None))

        async def perform() -> T:
            step = current_run()
            return await self._ledger.call(lambda ledger: work(ledger, step))

        spec = StepSpec(
            name=f"session {name}"[:_LONGEST_NAME],
            key=key,
            arguments=given,
            raises=(AlreadyExistsError, SessionNotFoundError),
        )
        done = aperform(spec, perform, AsItIs())
        # With a key, in a task of its own: agents side by side append in any order.
        return await (done if key is None else asyncio.create_task(done))


# --- writing ----------------------------------------------------------------------------


def _id_of(step: Run | None) -> UUID | None:
    """The id of the event of a step, the same in every attempt; None outside of a run."""
    return uuid5(step.run_id, step.call_id) if step is not None else None


def _step_key(said: Any) -> str | None:
    """The key of an append: agents that run side by side append in any order."""
    scope = current_scope()
    if scope is None:
        return None
    digest = sha256(canonical(said)).hexdigest()[:16]
    counts: Counter[str] = scope.memory.setdefault(_MEMORY, Counter())
    counts[f"{scope.place.parent} {digest}"] += 1
    return f"{digest}-{counts[f'{scope.place.parent} {digest}']}"


def _create(ledger: Ledger, key: SessionKey, state: dict[str, Any], event_id: UUID | None) -> None:
    run_id, version = session_run(ledger, key.session, KIND)
    first_id = event_id or uuid5(run_id, "started")
    if version and event_id is not None and recorded_ids(ledger, [event_id]):
        return  # by an earlier attempt
    if version:
        raise AlreadyExistsError(f"Session with id {key.session_id} already exists.")
    scopes = by_scope(state)
    seconds = ledger.clock.micros() / 1_000_000
    tags = {APP_TAG: key.app_name, USER_TAG: key.user_id, SESSION_TAG: key.session_id}
    started = RunStarted(
        request_type=KIND,
        request={"state": scopes.session, "time": seconds},
        tags={NAME_TAG: key.session, **tags},
    )
    first = ledger.prepare(
        Draft(started, first_id), exact=("request",), takes=lambda made: float(made.request["time"])
    )
    changes = _scope_changes(ledger, key, scopes, first_id)
    append_together(ledger, [(run_id, [first]), *changes], {})


def _append(ledger: Ledger, key: SessionKey, event: Event, event_id: UUID | None) -> bool:
    run_id, version = session_run(ledger, key.session, KIND)
    if not version:
        raise SessionNotFoundError(f"Session {key.session_id} not found.")
    data = event_json(event)
    # Equal events of one id are one event; others that share an id by chance are not.
    is_step = event_id is not None
    event_id = event_id or uuid5(run_id, f"{event.id} {sha256(canonical(data)).hexdigest()}")
    if recorded_ids(ledger, [event_id]):
        return is_step  # by an earlier attempt of the step: the session's object lacks it
    drafts: list[Draft | Entry] = [
        entry_of(ledger, EVENT, data, event_id, takes=Event.model_validate)
    ]
    said, blobs = message_events(ledger, run_id, event_id, data)
    for number, one in enumerate(said):
        drafts.append(Draft(one, uuid5(event_id, f"event {number}")))
    scopes = by_scope(data.get("actions", {}).get("stateDelta", {}))
    changes = _scope_changes(ledger, key, scopes, event_id)
    append_together(ledger, [(run_id, drafts), *changes], blobs)
    return True


def _scope_changes(
    ledger: Ledger, key: SessionKey, scopes: Scopes, event_id: UUID
) -> Iterator[tuple[UUID, list[Draft | Entry]]]:
    """The appends of changes of the app's and the user's state."""
    for name, delta in ((key.app, scopes.app), (key.user, scopes.user)):
        if not delta:
            continue
        run_id, version = session_run(ledger, name, STATE_KIND)
        drafts: list[Draft | Entry] = [entry_of(ledger, DELTA, delta, uuid5(event_id, name))]
        if not version:
            started = RunStarted(request_type=STATE_KIND, tags={NAME_TAG: name})
            drafts.insert(0, Draft(started, uuid5(run_id, "started")))
        yield run_id, drafts


# --- reading ----------------------------------------------------------------------------


Heads: TypeAlias = Mapping[str, Sequence[Any]]


def _heads(ledger: Ledger, key: SessionKey) -> dict[str, list[Any]] | None:
    """The runs that a session is read from, with their versions; None if there is no session."""
    named = {"session": (key.session, KIND)}
    named |= {"app": (key.app, STATE_KIND), "user": (key.user, STATE_KIND)}
    heads = {one: session_run(ledger, name, kind) for one, (name, kind) in named.items()}
    if not heads["session"][1]:
        return None
    return {one: [str(run_id), version] for one, (run_id, version) in heads.items()}


def _load(
    ledger: Ledger, key: SessionKey, config: GetSessionConfig | None, heads: Heads | None
) -> Session | None:
    if heads is None:
        return None
    events: list[Event] = []
    state: dict[str, Any] = {}
    updated = 0.0
    run_id, version = heads["session"]
    for record in ledger.read(run_id, until=version):
        event = record.event
        if isinstance(event, RunStarted):
            state, updated = dict(event.request["state"]), event.request["time"]
        elif isinstance(event, CustomEvent) and event.kind == EVENT:
            found = Event.model_validate(event.data)
            events.append(found)
            state.update(by_scope(found.actions.state_delta).session)
            updated = found.timestamp
    scopes = {one: _state_at(ledger, UUID(heads[one][0]), heads[one][1]) for one in ("app", "user")}
    return Session(
        app_name=key.app_name,
        user_id=key.user_id,
        id=key.session_id,
        events=_wanted(events, config),
        state=_merged(state, scopes["app"], scopes["user"]),
        last_update_time=updated,
    )


def _wanted(events: list[Event], config: GetSessionConfig | None) -> list[Event]:
    if config is None:
        return events
    if (most := config.num_recent_events) is not None:
        events = events[-most:] if most else []
    if (after := config.after_timestamp) is not None:
        older = [place for place, event in enumerate(events) if event.timestamp < after]
        events = events[older[-1] + 1 :] if older else events
    return events


def _merged(
    state: Mapping[str, Any], app: Mapping[str, Any], user: Mapping[str, Any]
) -> dict[str, Any]:
    """A session's state with its app's and user's."""
    merged = dict(state)
    for prefix, scope in ((State.APP_PREFIX, app), (State.USER_PREFIX, user)):
        merged |= {prefix + name: value for name, value in scope.items()}
    return merged


def _state(ledger: Ledger, name: str) -> dict[str, Any]:
    """The state of an app or a user."""
    run_id, version = session_run(ledger, name, STATE_KIND)
    return _state_at(ledger, run_id, version)


def _state_at(ledger: Ledger, run_id: UUID, version: int) -> dict[str, Any]:
    if not version:
        return {}
    found: dict[str, Any]
    if version == ledger.head(run_id):
        found = stored_folds(ledger, STATES, {run_id: version}, _fold)[run_id]
    else:
        found = _fold(None, (record.event for record in ledger.read(run_id, until=version)))
    state: dict[str, Any] = found["state"]
    return state


def _fold(before: Any, events: Iterator[LedgerEvent]) -> Any:
    """The state of a run after more events, and the time of the last one."""
    state: dict[str, Any] = dict(before["state"]) if before else {}
    updated = before["time"] if before else 0.0
    for event in events:
        if isinstance(event, RunStarted) and event.request is not None:
            state, updated = dict(event.request["state"]), event.request["time"]
        elif isinstance(event, CustomEvent) and event.kind == DELTA:
            state.update(event.data)
        elif isinstance(event, CustomEvent) and event.kind == EVENT:
            state.update(by_scope(event.data.get("actions", {}).get("stateDelta", {})).session)
            updated = event.data.get("timestamp", updated)
    return {"state": state, "time": updated}


def _list(ledger: Ledger, app_name: str, user_id: str | None) -> ListSessionsResponse:
    tags = {APP_TAG: app_name, **({} if user_id is None else {USER_TAG: user_id})}
    runs = [run for run in ledger.runs(status="running", tags=tags) if run.kind == "run"]
    found = stored_folds(ledger, STATES, {run.run_id: run.version for run in runs}, _fold)
    app = _state(ledger, SessionKey(app_name, "", "").app)
    sessions = []
    for run in runs:
        key = SessionKey(run.tags[APP_TAG], run.tags[USER_TAG], run.tags[SESSION_TAG])
        folded = found[run.run_id]
        session = Session(
            app_name=key.app_name,
            user_id=key.user_id,
            id=key.session_id,
            state=_merged(folded["state"], app, _state(ledger, key.user)),
            last_update_time=folded["time"],
        )
        sessions.append(session)
    sessions.sort(key=lambda one: (one.last_update_time, one.user_id, one.id))
    return ListSessionsResponse(sessions=sessions)

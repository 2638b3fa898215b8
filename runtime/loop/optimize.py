"""`optimize`: has a model explore the workspace of a prompt, and keeps the digest that it writes.

That is a run of its own, in the ledger of the caller's session, with a session, a bus and a copy
of the workspace of its own. Its id is recorded in the caller's session before it begins: after a
crash the same run goes on. Its digest comes back as a change of the session, so that a replay of
the caller's run needs nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from turnledger.ledger import InvalidInputError, Ledger, RunResumed, RunStarted, new_run_id
from turnledger.ledger.events.types import CATALOGUE
from turnledger.ledger.runs.names import SERVES_TAG
from turnledger.runtime.agent.prompts.override_texts import PromptOverridesStore
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.agent.prompts.sections import MarkdownSection, Section
from turnledger.runtime.agent.prompts.template import PromptTemplate
from turnledger.runtime.agent.schema.values import to_plain
from turnledger.runtime.checkpoints.checkpoint import RecoveryConfig
from turnledger.runtime.checkpoints.execution_state import ExecutionState
from turnledger.runtime.checkpoints.filesystem import SnapshotableFilesystem
from turnledger.runtime.errors import (
    EvaluationPhase,
    PromptDefinitionError,
    PromptEvaluationError,
)
from turnledger.runtime.journal.heartbeat import LEASE, claimed, worker_name
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.journal.known import Known
from turnledger.runtime.loop.context import Provider
from turnledger.runtime.loop.events import PromptResponse
from turnledger.runtime.loop.host import LoopHost
from turnledger.runtime.loop.perform.prepare import prepare_resources
from turnledger.runtime.loop.run import RunWork, run_to_end
from turnledger.runtime.session.overlay import Overlay, scope_of
from turnledger.runtime.session.session import Session, enable_inner_message_recording
from turnledger.runtime.workspace.digest import (
    OptimizationResult,
    OptimizationScope,
    WorkspaceDigestSection,
    clear_workspace_digest,
    set_workspace_digest,
)
from turnledger.runtime.workspace.file_tools import WORKSPACE, workspace_of
from turnledger.runtime.workspace.planning import PlanningStrategy, PlanningToolsSection
from turnledger.runtime.workspace.sections import WorkspaceSection

SectionT = TypeVar("SectionT", bound=Section[Any])

_GOAL = """
Write a digest of the workspace: what another engineer, who has never seen it, needs to know before
the first task in it. Your answer is shown at the beginning of every later prompt about this
workspace, as it stands.
"""
_EXPECTATIONS = """
- Look before you write: list the directories, and read the files that explain the others (read-me
  files, manifests, entry points, tests).
- Say what the workspace is for, how it is laid out, which commands build and test it, which rules
  its authors follow, and what is easy to get wrong.
- Name files by their paths. Claim nothing that you have not read.
- Leave the files as they are.
- Answer with the digest alone, in Markdown, of at most 400 words.
"""


@dataclass(frozen=True)
class WorkspaceOptimization:
    """The request of an optimization's run: the prompt, and its digest section."""

    prompt: str
    section_key: str


@dataclass(frozen=True)
class OptimizationStarted:
    """An optimization that is under way: the section, and the id of the run."""

    __ledger_name__ = "turnledger.OptimizationStarted"

    section_key: str
    run_id: str


class Evaluating(Provider, Protocol):
    """A `ProviderAdapter`, as an optimization uses it."""

    @property
    def evaluate(self) -> Any: ...


class Caller(NamedTuple):
    """Whom an optimization is for: the session, and its resources if there are any."""

    session: Session
    resources: dict[str, Any]

    @classmethod
    def of(cls, session: Session | None, state: ExecutionState | None) -> Caller:
        """Take exactly one of a session and an execution state."""
        if state is not None and session is None:
            return cls(state.session, state.resources)
        if session is None or state is not None:
            raise InvalidInputError("optimize takes exactly one of session and execution_state.")
        return cls(session, {})


class Found(NamedTuple):
    """The sections of a prompt that an optimization is about, and the digest's path."""

    workspace: WorkspaceSection
    digest: WorkspaceDigestSection
    path: str

    @classmethod
    def of(cls, prompt: Prompt[Any]) -> Found:
        """Find them; PromptEvaluationError if one is missing."""
        workspace, _ = _section(prompt, WorkspaceSection)
        digest, path = _section(prompt, WorkspaceDigestSection)
        return cls(workspace, digest, path)


def optimize(
    adapter: Evaluating,
    prompt: Prompt[Any],
    caller: Caller,
    *,
    scope: OptimizationScope = OptimizationScope.SESSION,
    overrides_store: PromptOverridesStore | None = None,
    overrides_tag: str | None = None,
    optimization_session: Session | None = None,
    call_id: str | None = None,
) -> OptimizationResult:
    """Have the digest of a prompt's workspace written, and store it; see ProviderAdapter.optimize.

    Args:
        adapter: Asks the model.
        prompt: Has a workspace section and a digest section.
        caller: Whom it is for.
        scope: Where the digest is stored.
        overrides_store: Has texts for the optimization's own prompt; GLOBAL stores there.
        overrides_tag: Which of the store's texts.
        optimization_session: Used for the run instead of a new session.
        call_id: The call id of the changes of the caller's session, if its loop makes them.
    """
    found = Found.of(prompt)
    set_override = getattr(overrides_store, "set_section_override", None)
    if scope is OptimizationScope.GLOBAL and (set_override is None or not overrides_tag):
        why = "the scope GLOBAL needs overrides_tag, and an overrides_store that can be written"
        raise _failed(prompt, why, "request")
    if scope_of(caller.session) is not None:
        raise InvalidInputError(
            "A tool can't optimize the session that it runs in. Call optimize before the "
            "evaluation, or set_workspace_digest in the tool."
        )
    if optimization_session is caller.session:
        raise InvalidInputError(
            "Invalid optimization_session: expected another session than the one that gets the "
            "digest."
        )
    inner = optimization_prompt(prompt)
    key, session = found.digest.key, caller.session
    run_id = _begun(session, key, call_id)
    with _host(adapter, inner, caller, optimization_session) as whole:
        host = replace(
            whole, overrides_store=overrides_store, overrides_tag=overrides_tag or "latest"
        )
        request = WorkspaceOptimization(prompt.template.path, key)
        response = _ran(host, caller, run_id, inner, request)
    digest = _digest_of(response)
    if digest and scope is OptimizationScope.GLOBAL and set_override is not None:
        template = digest.replace("${", "$${")  # an override is a template, a digest is text
        set_override(prompt, tag=overrides_tag, path=found.path, body=template)

    def store_digest() -> None:
        session[OptimizationStarted].seed(_under_way(session, but=key))
        if scope is OptimizationScope.GLOBAL:
            clear_workspace_digest(session, key)
        elif digest:
            set_workspace_digest(session, key, digest)

    _change(session, call_id, store_digest)
    if not digest:
        raise _failed(prompt, "the model wrote an empty digest of the workspace", "response")
    return OptimizationResult(response, digest, scope, key)


def optimization_prompt(prompt: Prompt[Any]) -> Prompt[Any]:
    """The prompt by which the digest of another prompt's workspace is written."""
    found = Found.of(prompt)
    planning = PlanningToolsSection(strategy=PlanningStrategy.GOAL_DECOMPOSE_ROUTE_SYNTHESISE)
    try:
        template: PromptTemplate[Any] = PromptTemplate(
            ns=f"{prompt.ns}.optimization",
            key=f"{prompt.key}-workspace-digest",
            sections=[
                MarkdownSection(title="Goal", template=_GOAL, key="goal"),
                MarkdownSection(title="Expectations", template=_EXPECTATIONS, key="expectations"),
                planning,
                found.workspace.clone(),
                found.digest.clone(),
            ],
        )
    except PromptDefinitionError as error:
        raise _failed(prompt, f"its optimization prompt: {error}", "request") from error
    return Prompt(template, deadline=prompt.deadline)


# --- the caller's session ----------------------------------------------------------------


def _begun(session: Session, key: str, call_id: str | None) -> UUID:
    """The run of the optimization that is under way, or the id of a new one, on record."""
    ledger = session.journal.ledger
    for one in session[OptimizationStarted].all():
        is_begun = bool(ledger.head(one.run_id))
        if one.section_key == key and not (
            is_begun and ledger.run(one.run_id).status == "abandoned"
        ):
            return UUID(one.run_id)
    run_id = new_run_id()
    _change(
        session,
        call_id,
        lambda: session[OptimizationStarted].append(OptimizationStarted(key, str(run_id))),
    )
    return run_id


def _under_way(session: Session, *, but: str) -> list[OptimizationStarted]:
    return [one for one in session[OptimizationStarted].all() if one.section_key != but]


def _change(session: Session, call_id: str | None, change: Callable[[], None]) -> None:
    """Change the session; with a call id as a step of its loop, which is committed at once."""
    if call_id is None:
        change()
        return
    journal = session.journal
    overlay = Overlay(journal, call_id)
    with session.scope(overlay):
        change()
    overlay.close()
    journal.add(overlay.changes)
    journal.commit()


# --- the run -----------------------------------------------------------------------------


@contextmanager
def _host(
    adapter: Evaluating, prompt: Prompt[Any], caller: Caller, given: Session | None
) -> Iterator[LoopHost]:
    """The loop of an optimization's run, with a directory for its copy of the workspace."""
    journal = caller.session.journal
    session = given if given is not None else Session(clock=caller.session.clock)
    enable_inner_message_recording(session)

    def prepare(prompt: Prompt[Any], state: ExecutionState) -> None:
        if WORKSPACE not in caller.resources:
            prepare_resources(prompt, state)
        else:
            files = workspace_of(caller.resources).snapshot()
            workspace_of(state.resources).restore(files)

    with TemporaryDirectory(prefix="turnledger-") as directory:
        yield LoopHost(
            adapter=adapter,
            evaluate=adapter.evaluate,
            bus=session.bus,
            clock=session.clock,
            create_prompt=lambda request: prompt,
            create_session=lambda: session,
            resources=lambda: {WORKSPACE: SnapshotableFilesystem(directory)},
            request_type=WorkspaceOptimization,
            ledger=journal.ledger,
            recovery=RecoveryConfig(),
            backend=None,
            lease=LEASE,
            prepare=prepare,
            tool_timeout=journal.tool_timeout,
        )


def _ran(
    host: LoopHost,
    caller: Caller,
    run_id: UUID,
    prompt: Prompt[Any],
    request: WorkspaceOptimization,
) -> PromptResponse[Any]:
    """Run it to its end from wherever it was; a run that is completed gives its answer again."""
    ledger, session = host.ledger, host.create_session()
    assert ledger is not None
    is_new, claim = not ledger.head(run_id), None
    if not is_new and ledger.run(run_id).status == "completed":
        return _answer_again(host, ledger, run_id, prompt)
    if is_new:
        started = _started(caller, run_id, session, request)
        claim = ledger.begin(run_id, started, worker=worker_name(ledger), ttl=host.lease)
    with claimed(
        ledger,
        run_id,
        declarations=session.declarations,
        clock=host.clock,
        claim=claim,
        known=lambda: _checked(ledger, run_id, session),
    ) as journal:
        recorded = journal.progress.started
        assert recorded is not None
        if not is_new:
            attempt, version = journal.progress.next_attempt, journal.committed.version
            journal.add(RunResumed(attempt=attempt, from_version=version, catalogue=CATALOGUE))
        session.attach(journal)
        session.session_id = recorded.session_id or session.session_id
        state = ExecutionState(session=session, resources=host.resources())
        state.restore_recorded(journal.known, journal.blob)
        return run_to_end(
            RunWork(
                host=host,
                run_id=run_id,
                journal=journal,
                session=session,
                request=request,
                started=recorded,
                state=state,
                deadline=prompt.deadline,
            )
        )


def _started(
    caller: Caller, run_id: UUID, session: Session, request: WorkspaceOptimization
) -> RunStarted:
    """The first event of the run: it serves the caller's run, and has the limits of that."""
    journal = caller.session.journal
    ledger, limits = journal.ledger, journal.progress.started or RunStarted()
    parent = session.run_in(ledger)
    return RunStarted(
        request_id=run_id,
        request_type=WorkspaceOptimization.__name__,
        request=to_plain(request),
        session_id=session.session_id,
        tags={**session.tags, SERVES_TAG: str(journal.run_id)},
        budget=limits.budget,
        max_turns=limits.max_turns,
        parent=parent,
        at=ledger.head(parent) if parent is not None else 0,
        kind="continuation" if parent is not None else "run",
        catalogue=CATALOGUE,
    )


def _checked(ledger: Ledger, run_id: UUID, session: Session) -> Known:
    """The state of a run, read with its digests checked."""
    return Known.initial(session.declarations).after(ledger.checked(run_id).read_on())


def _answer_again(
    host: LoopHost, ledger: Ledger, run_id: UUID, prompt: Prompt[Any]
) -> PromptResponse[Any]:
    """The recorded answer of a run that is completed; nothing is asked or written."""
    session = host.create_session()
    known = _checked(ledger, run_id, session)
    session.attach(Journal(ledger, run_id, declarations=session.declarations, known=known))
    state = ExecutionState(session=session)
    return host.evaluate(
        prompt,
        execution_state=state,
        bus=host.bus,
        deadline=None,
        budget_tracker=None,
        overrides_store=host.overrides_store,
        overrides_tag=host.overrides_tag,
        resume=True,
    )


def _digest_of(response: PromptResponse[Any]) -> str:
    """The digest in an answer: its output, or the output's field `digest`, or its text."""
    output = getattr(response.output, "digest", response.output)
    return (output if isinstance(output, str) else response.text or "").strip()


# --- the prompt --------------------------------------------------------------------------


def _section(prompt: Prompt[Any], kind: type[SectionT]) -> tuple[SectionT, str]:
    for path, _, section in prompt.template.walk():
        if isinstance(section, kind):
            return section, path
    raise _failed(prompt, f"it has no {kind.__name__} to optimize", "request")


def _failed(prompt: Prompt[Any], why: str, phase: EvaluationPhase) -> PromptEvaluationError:
    return PromptEvaluationError(why, prompt_name=prompt.label, phase=phase)

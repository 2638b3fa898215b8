"""`optimize`: a run of its own in which a model writes the digest of a prompt's workspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.agent import Crash, ScriptedLoop, calls, says
from turnledger.ledger import InvalidInputError, Ledger, RunClaimedError, RunStarted, new_run_id
from turnledger.ledger.runs.names import SERVES_TAG
from turnledger.projections import state_at
from turnledger.runtime import (
    Deadline,
    ExecutionState,
    FilesystemCheckpointBackend,
    InProcessEventBus,
    MainLoopConfig,
    MarkdownSection,
    Prompt,
    PromptEvaluationError,
    PromptResponse,
    PromptTemplate,
    RecoveryConfig,
    ScriptedAdapter,
    Session,
    SnapshotableFilesystem,
    ToolInvoked,
    replay,
)
from turnledger.runtime.agent.overrides import LedgerOverridesStore
from turnledger.runtime.loop.optimize import (
    OptimizationStarted,
    optimization_prompt,
)
from turnledger.runtime.main_loop import OptimizationLoop
from turnledger.runtime.session.overlay import Overlay
from turnledger.runtime.workspace import (
    HostMount,
    OptimizationScope,
    Plan,
    VfsToolsSection,
    WorkspaceDigest,
    WorkspaceDigestSection,
    clear_workspace_digest,
    set_workspace_digest,
)

STORE = LedgerOverridesStore(Ledger.open("memory://"))
TASK = MarkdownSection[None](title="Task", template="Do it.", key="task")
DIGEST = WorkspaceDigest("workspace-digest", "A package of one file.")
EXPLORE = [
    calls(("o1", "read_file", '{"file_path": "/a.py"}')),
    calls(("o2", "write_file", '{"file_path": "/scratch", "content": "x"}')),
    says("A package of one file.\n"),
]


def prompt_of(*sections: Any, **options: Any) -> Prompt[Any]:
    chosen = sections or (VfsToolsSection(**options), WorkspaceDigestSection())
    return Prompt(PromptTemplate(ns="reviews", key="review", sections=[TASK, *chosen]))


def state_in(folder: Path, session: Session | None = None) -> ExecutionState:
    (folder / "a.py").write_text("x = 1\n")
    files = SnapshotableFilesystem(folder)
    return ExecutionState(session=session or Session(), resources={"workspace": files})


def inner_runs(ledger: Ledger) -> list[Any]:
    return [info for info in ledger.runs() if SERVES_TAG in info.tags]


def test_the_digest_that_a_model_writes_is_set_in_the_callers_session(tmp_path: Path) -> None:
    """S4-23: the prompt, its name and the result are as the seed prints them."""
    systems: list[str] = []

    def reply(request: Any) -> Any:
        systems.append(request.system)
        return EXPLORE[request.turn - 1]

    adapter: ScriptedAdapter[Any] = ScriptedAdapter(reply)
    state = state_in(tmp_path)
    result = adapter.optimize(prompt_of(), execution_state=state)
    assert (result.digest, result.section_key) == (DIGEST.body, DIGEST.section_key)
    assert result.scope is OptimizationScope.SESSION
    assert result.response.prompt_name == "reviews.optimization/review-workspace-digest"
    assert [one.name for one in result.response.tool_results] == ["read_file", "write_file"]
    headings = [line for line in systems[0].splitlines() if line.startswith("## ")]
    titles = ["Goal", "Expectations", "Planning", "Workspace", "Workspace digest"]
    assert headings == [f"## {title}" for title in titles]
    assert state.session[WorkspaceDigest].all() == (DIGEST,)


def test_an_optimization_reaches_neither_the_callers_session_nor_bus_nor_files(
    tmp_path: Path,
) -> None:
    """Its tools plan and write in what is its own."""
    heard: list[Any] = []
    bus = InProcessEventBus()
    bus.subscribe(ToolInvoked, heard.append)
    replies = [calls(("o1", "planning_setup_plan", '{"objective": "look"}')), *EXPLORE[1:]]
    state = state_in(tmp_path, Session(bus=bus))
    ScriptedAdapter(replies).optimize(prompt_of(), execution_state=state)
    assert heard == []
    assert state.session[Plan].latest() is None
    assert [one.name for one in tmp_path.iterdir()] == ["a.py"]


def test_without_resources_the_workspace_has_the_sections_mounts(tmp_path: Path) -> None:
    """A session alone is enough."""
    (tmp_path / "a.py").write_text("x = 1\n")
    prompt = prompt_of(
        mounts=[HostMount(tmp_path / "a.py", "/a.py")], allowed_host_roots=[tmp_path]
    )
    result = ScriptedAdapter(EXPLORE).optimize(prompt, session=Session())
    assert "x = 1" in result.response.tool_results[0].result.message


def test_an_optimization_session_is_used_with_its_bus(tmp_path: Path) -> None:
    """S4-23: the caller may give the session; what the tools change in it stays."""
    heard: list[Any] = []
    mine = Session(bus=InProcessEventBus(), tags={"mine": "yes"})
    mine.bus.subscribe(ToolInvoked, heard.append)  # type: ignore[attr-defined]
    replies = [calls(("o1", "planning_setup_plan", '{"objective": "look"}')), *EXPLORE[1:]]
    session = Session()
    state = state_in(tmp_path, session)
    ScriptedAdapter(replies).optimize(prompt_of(), execution_state=state, optimization_session=mine)
    plan = mine[Plan].latest()
    assert plan is not None
    assert plan.objective == "look"
    assert [one.name for one in heard] == ["planning_setup_plan", "write_file"]
    [run] = inner_runs(session.journal.ledger)
    assert (run.tags["mine"], mine.journal.run_id) == ("yes", run.run_id)


def test_the_global_scope_stores_the_digest_and_clears_the_sessions_copy(tmp_path: Path) -> None:
    """S4-23: the next evaluation shows the override; the store serves the inner prompt too."""
    state = state_in(tmp_path)
    store = LedgerOverridesStore(state.session.journal.ledger)
    prompt, inner = prompt_of(), optimization_prompt(prompt_of())
    store.set_section_override(inner, tag="stable", path="goal", body="Be brief.")
    set_workspace_digest(state.session, "workspace-digest", "old")
    systems: list[str] = []

    def reply(request: Any) -> Any:
        systems.append(request.system)
        return says("It costs ${price}.")

    result = ScriptedAdapter(reply).optimize(
        prompt,
        execution_state=state,
        store_scope=OptimizationScope.GLOBAL,
        overrides_store=store,
        overrides_tag="stable",
    )
    assert result.scope is OptimizationScope.GLOBAL
    assert "Be brief." in systems[0]
    assert dict(store.section_overrides("reviews", "review", "stable") or {}) == {
        "workspace-digest": "It costs $${price}."
    }
    assert state.session[WorkspaceDigest].all() == ()
    rendered = prompt.render(state=state.session, overrides_store=store, overrides_tag="stable")
    assert rendered.text.endswith("It costs ${price}.")


class ReadOnly:
    """An overrides store that can't be written."""

    def section_overrides(self, ns: str, key: str, tag: str) -> dict[str, str]:
        return {}


@pytest.mark.parametrize(
    ("prompt", "options", "why"),
    [
        (prompt_of(VfsToolsSection()), {}, "no WorkspaceDigestSection"),
        (prompt_of(WorkspaceDigestSection()), {}, "no WorkspaceSection"),
        (prompt_of(), {"overrides_tag": "x"}, "GLOBAL needs"),
        (prompt_of(), {"overrides_store": ReadOnly(), "overrides_tag": "x"}, "can be written"),
        (prompt_of(), {"overrides_store": STORE}, "GLOBAL needs overrides_tag"),
        (
            prompt_of(VfsToolsSection(key="goal"), WorkspaceDigestSection()),
            {},
            "two sections have this key",
        ),
    ],
)
def test_what_can_not_be_optimized_is_refused_before_anything_runs(
    prompt: Prompt[Any], options: dict[str, Any], why: str
) -> None:
    """S4-23: in phase request; nothing is recorded."""
    session = Session()
    scope = OptimizationScope.GLOBAL if options else OptimizationScope.SESSION
    with pytest.raises(PromptEvaluationError, match=why) as raised:
        ScriptedAdapter([]).optimize(prompt, session=session, store_scope=scope, **options)
    assert raised.value.phase == "request"
    assert session.journal.known.version == 1


@pytest.mark.parametrize("answer", ["", " \n"])
def test_an_empty_answer_fails_in_phase_response(answer: str, tmp_path: Path) -> None:
    """S4-23: and the next attempt asks again, in another run."""
    state = state_in(tmp_path)
    with pytest.raises(PromptEvaluationError) as raised:
        ScriptedAdapter([*EXPLORE[:2], says(answer)]).optimize(prompt_of(), execution_state=state)
    assert raised.value.phase == "response"
    assert state.session[WorkspaceDigest].all() == ()
    ScriptedAdapter(EXPLORE).optimize(prompt_of(), execution_state=state)
    assert state.session[WorkspaceDigest].all() == (DIGEST,)


@dataclass(frozen=True)
class Answer:
    digest: str


@pytest.mark.parametrize("output", ["from the output", Answer("from the output")])
def test_the_digest_is_the_output_of_an_adapter_that_gives_one(output: Any, tmp_path: Path) -> None:
    """S4-23: text, or something with a `digest`; an adapter may override `evaluate`."""

    class Parsing(ScriptedAdapter[Any]):
        def evaluate(self, prompt: Any, *params: Any, **options: Any) -> PromptResponse[Any]:
            response = super().evaluate(prompt, *params, **options)
            return replace(response, output=output, text=None)

    result = Parsing(EXPLORE).optimize(prompt_of(), execution_state=state_in(tmp_path))
    assert result.digest == "from the output"


@pytest.mark.parametrize("given", ["none", "both"])
def test_optimize_takes_exactly_one_of_session_and_execution_state(given: str) -> None:
    """As evaluate does."""
    session = Session()
    both = {"session": session, "execution_state": ExecutionState(session=session)}
    with pytest.raises(InvalidInputError, match="exactly one"):
        ScriptedAdapter([]).optimize(prompt_of(), **(both if given == "both" else {}))
    with pytest.raises(InvalidInputError, match="another session"):
        ScriptedAdapter([]).optimize(prompt_of(), session=session, optimization_session=session)


# --- in a loop's run ---------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    name: str = "job"


class Reviewer(ScriptedLoop[Job, Any]):
    """Optimizes its prompt while its session has no digest."""

    def __init__(self, replies: Any, folder: Path, ledger: Ledger, **options: Any) -> None:
        (folder / "a.py").write_text("x = 1\n")
        resources = {"workspace": SnapshotableFilesystem(folder)}
        super().__init__(replies, ledger=ledger, resources=resources, **options)

    def create_prompt(self, request: Job) -> Prompt[Any]:
        return prompt_of()

    def needs_optimization(self, session: Session) -> bool:
        return session[WorkspaceDigest].latest() is None


def model(explored: Sequence[Any] = EXPLORE, asked: list[str] | None = None) -> Any:
    """A model that explores in an optimization, and else answers with the prompt that it got."""

    def reply(request: Any) -> Any:
        is_inner = "## Goal" in request.system
        if asked is not None:
            asked.append("optimization" if is_inner else "review")
        one = explored[request.turn - 1] if is_inner else says(request.system[-22:])
        if isinstance(one, BaseException):
            raise one
        return one

    return reply


def test_a_loop_optimizes_before_the_first_evaluation_and_not_again(tmp_path: Path) -> None:
    """The run of the optimization is another one, tagged with the run that it serves."""
    asked: list[str] = []
    with Ledger.open("memory://") as ledger:
        loop = Reviewer(model(asked=asked), tmp_path, ledger)
        kept = loop.create_session()
        loop.create_session = lambda: kept  # type: ignore[method-assign]
        run = new_run_id()
        response, session = loop.execute(Job(), run_id=run)
        loop.execute(Job())
        assert response.text == DIGEST.body
        assert session[WorkspaceDigest].latest() == DIGEST
        assert asked == ["optimization"] * 3 + ["review"] * 2
        [inner] = inner_runs(ledger)
        assert (inner.tags[SERVES_TAG], inner.status) == (str(run), "completed")
        started = ledger.record(inner.run_id, 1).event
        assert isinstance(started, RunStarted)
        assert started.request == {"prompt": "reviews/review", "section_key": "workspace-digest"}
        assert started.max_turns == 50


def test_a_recovered_run_goes_on_with_the_optimization_that_it_began(tmp_path: Path) -> None:
    """In another folder: the same run, the same outcome; it is offered to nobody else."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with Ledger.open("memory://") as ledger:
        whole, broken = new_run_id(), new_run_id()
        Reviewer(model(), tmp_path / "one", ledger).execute(Job(), run_id=whole)
        dying = Reviewer(model([EXPLORE[0], Crash()]), tmp_path / "one", ledger)
        with pytest.raises(Crash):
            dying.execute(Job(), run_id=broken)
        asked: list[str] = []
        loop = Reviewer(model(asked=asked), tmp_path / "two", ledger)
        assert [one.run_id for one in loop.list_recoverable()] == [broken]
        loop.recover(broken)
        assert asked == ["optimization", "optimization", "review"]
        assert len(inner_runs(ledger)) == 2
        assert len({state_at(ledger, run).outcome_digest for run in (whole, broken)}) == 1


def test_a_replay_takes_the_digest_from_the_record_and_performs_nothing(tmp_path: Path) -> None:
    """Of the run as of the optimization's own, also where attempts were interrupted."""
    with Ledger.open("memory://") as ledger:
        run = new_run_id()
        with pytest.raises(Crash):
            Reviewer(model([EXPLORE[0], Crash()]), tmp_path, ledger).execute(Job(), run_id=run)
        Reviewer(model(), tmp_path, ledger).recover(run)
        count = sum(1 for _ in ledger.tail())
        loop = Reviewer(model([AssertionError()]), tmp_path, ledger)
        replayed = replay(ledger, run, loop=loop)
        assert (replayed.divergence, replayed.attempts) == (None, 2)
        [inner] = inner_runs(ledger)
        again = OptimizationLoop(
            adapter=ScriptedAdapter([]), bus=InProcessEventBus(), prompt=prompt_of(), ledger=ledger
        )
        assert replay(ledger, inner.run_id, loop=again).divergence is None
        assert sum(1 for _ in ledger.tail()) == count


@pytest.mark.parametrize("failing", [says(""), RuntimeError("no model today")])
def test_a_failed_optimization_fails_its_run_and_is_replayed_as_it_failed(
    failing: Any, tmp_path: Path
) -> None:
    """RunFailed has the phase, and says that it was the optimization."""
    with Ledger.open("memory://") as ledger:
        run = new_run_id()
        with pytest.raises(PromptEvaluationError):
            Reviewer(model([failing] * 9), tmp_path, ledger).execute(Job(), run_id=run)
        failed = ledger.record(run, ledger.head(run) - 1).event
        assert getattr(failed, "step", "") == "optimize"
        assert replay(ledger, run, loop=Reviewer(model(), tmp_path, ledger)).divergence is None
        Reviewer(model(), tmp_path, ledger).recover(run)
        assert ledger.run(run).status == "completed"


def test_a_loop_that_no_longer_optimizes_diverges_from_its_record(tmp_path: Path) -> None:
    """And one that now does, where the run did not."""

    class Plain(Reviewer):
        def needs_optimization(self, session: Session) -> bool:
            return False

    with Ledger.open("memory://") as ledger:
        one, other = new_run_id(), new_run_id()
        Reviewer(model(), tmp_path, ledger).execute(Job(), run_id=one)
        Plain(model(), tmp_path, ledger).execute(Job(), run_id=other)
        assert replay(ledger, one, loop=Plain(model(), tmp_path, ledger)).divergence is not None
        found = replay(ledger, other, loop=Reviewer(model(), tmp_path, ledger)).divergence
        assert found is not None
        assert found.found == "an optimization of the workspace"


def test_an_optimization_that_was_abandoned_is_begun_again_as_another_run(tmp_path: Path) -> None:
    """So that a person can give up on one without giving up on the run that it serves."""
    with Ledger.open("memory://") as ledger:
        run = new_run_id()
        with pytest.raises(Crash):
            Reviewer(model([EXPLORE[0], Crash()]), tmp_path, ledger).execute(Job(), run_id=run)
        loop = Reviewer(model(), tmp_path, ledger)
        [inner] = inner_runs(ledger)
        loop.abandon(inner.run_id)
        loop.recover(run)
        assert sorted(one.status for one in inner_runs(ledger)) == ["abandoned", "completed"]


def test_an_optimization_that_another_worker_has_is_left_to_it(tmp_path: Path) -> None:
    """The run that it serves has not failed: it can be recovered later."""
    with Ledger.open("memory://") as ledger:
        run = new_run_id()
        with pytest.raises(Crash):
            Reviewer(model([EXPLORE[0], Crash()]), tmp_path, ledger).execute(Job(), run_id=run)
        [inner] = inner_runs(ledger)
        claim = ledger.claim(inner.run_id, worker="another")
        loop = Reviewer(model(), tmp_path, ledger)
        with pytest.raises(RunClaimedError):
            loop.recover(run)
        assert ledger.run(run).status == "running"
        claim.release()
        loop.recover(run)
        assert ledger.run(run).status == "completed"


def test_a_loop_may_optimize_the_session_that_it_keeps_between_its_runs(tmp_path: Path) -> None:
    """S2-11: as the seed prints it: before `execute`, while there is no digest."""

    class Kept(Reviewer):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self._session = Session(bus=self._bus)

        def create_session(self) -> Session:
            return self._session

        def needs_optimization(self, session: Session) -> bool:
            return False

        def execute(self, request: Job, **options: Any) -> Any:
            if self._session[WorkspaceDigest].latest() is None:
                self._run_optimization()
            return super().execute(request, **options)

        def _run_optimization(self) -> None:
            files = self.loop_host.resources()
            state = ExecutionState(session=self._session, resources=files)
            self._adapter.optimize(self.create_prompt(Job()), execution_state=state)

    asked: list[str] = []
    with Ledger.open("memory://") as ledger:
        loop = Kept(model(asked=asked), tmp_path, ledger)
        for _ in range(2):
            response, session = loop.execute(Job())
            assert response.text == DIGEST.body
        clear_workspace_digest(session)
        response, _ = loop.execute(Job())
        assert response.text == DIGEST.body
        review, optimization = ["review"], ["optimization"] * 3
        assert asked == [*optimization, *review, *review, *optimization, *review]


def test_the_runs_deadline_holds_for_its_optimization(tmp_path: Path) -> None:
    """In what is left of the time; a prompt's own holds where there is no other."""
    past = MainLoopConfig(deadline=Deadline(expires_at=datetime(2020, 1, 1, tzinfo=UTC)))
    with Ledger.open("memory://") as ledger, pytest.raises(PromptEvaluationError) as raised:
        Reviewer(model(), tmp_path, ledger, config=past).execute(Job())
    assert raised.value.prompt_name == "reviews.optimization/review-workspace-digest"
    late = replace(prompt_of(), deadline=Deadline(expires_at=datetime(2020, 1, 1, tzinfo=UTC)))
    with pytest.raises(PromptEvaluationError, match="deadline"):
        ScriptedAdapter(EXPLORE).optimize(late, execution_state=state_in(tmp_path))


def test_checkpoint_files_alone_are_enough_to_go_on_with_an_optimization(tmp_path: Path) -> None:
    """Its run is lost with the memory of its process, and begun again under the same id."""
    recovery = RecoveryConfig(backend=FilesystemCheckpointBackend(tmp_path / "checkpoints"))
    (tmp_path / "files").mkdir()
    options: Any = {"ledger": None, "recovery": recovery}
    run = new_run_id()
    dying = Reviewer(model([EXPLORE[0], Crash()]), tmp_path / "files", **options)
    with pytest.raises(Crash):
        dying.execute(Job(), run_id=run)
    response, session = Reviewer(model(), tmp_path / "files", **options).recover(run)
    assert response.text == DIGEST.body
    assert session[OptimizationStarted].all() == ()


def test_a_tool_can_not_optimize_the_session_that_it_runs_in(tmp_path: Path) -> None:
    """Its changes are committed with its result: the id of another run could not come first."""
    session = Session()
    state = state_in(tmp_path, session)
    with (
        session.scope(Overlay(session.journal, "call")),
        pytest.raises(InvalidInputError, match="set_workspace_digest"),
    ):
        ScriptedAdapter([]).optimize(prompt_of(), execution_state=state)

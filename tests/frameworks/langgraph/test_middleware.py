"""The middleware: model and tool calls of an agent are steps of its thread's run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelRetryMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from tests.frameworks.langgraph.graphs import PlannedModel, agent, config
from turnledger import run as run_block
from turnledger import step
from turnledger.langgraph import TurnledgerMiddleware, TurnledgerSaver
from turnledger.ledger import (
    InvalidInputError,
    Ledger,
    MessageAppended,
    ModelCalled,
    ModelReplied,
    RunClaimedError,
    ToolCallCompleted,
    ToolCallStarted,
    run_id_for,
)
from turnledger.projections import Usage, fold
from turnledger.runtime import ReplayDivergedError
from turnledger.runtime.steps import StepFailedError


class Tool:
    """A tool that counts its calls."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.during: Callable[[int], object] = bool

        @tool
        def look(n: int) -> str:
            """Look something up."""
            self.calls.append(n)
            self.during(n)
            return f"saw {n}"

        self.tool = look


@pytest.fixture
def looking() -> Tool:
    return Tool()


def made(saver: TurnledgerSaver, looking: Tool, turns: int = 2, **more: Any) -> Any:
    steps = TurnledgerMiddleware(saver, **more)
    return agent(saver, turns, [looking.tool], middleware=[steps]), steps


def go(graph: Any, text: str = "go", thread: str = "t") -> list[str]:
    result = graph.invoke({"messages": [HumanMessage(text)]}, config(thread))
    return [message.text for message in result["messages"]]


def events(ledger: Ledger, kind: type, thread: str = "t") -> list[Any]:
    found = (record.event for record in ledger.read(run_id_for(thread)))
    return [event for event in found if isinstance(event, kind)]


def test_a_tools_start_is_on_disk_before_it_runs(
    saver: TurnledgerSaver, ledger: Ledger, looking: Tool
) -> None:
    """A crash inside of a tool finds its start on record."""
    seen = []
    looking.during = lambda n: seen.append(events(ledger, ToolCallStarted)[-1].call_id)
    go(made(saver, looking)[0])
    assert seen == ["look:call-0", "look:call-1"]
    assert [one.name for one in events(ledger, ToolCallCompleted)] == ["look", "look"]
    assert ledger.run(run_id_for("t")).status == "completed"
    assert ledger.verify(run_id_for("t")).ok


def test_usage_is_counted_once(saver: TurnledgerSaver, ledger: Ledger, looking: Tool) -> None:
    """Saver and middleware write to one run, and a reply's tokens are recorded by one of them."""
    go(made(saver, looking)[0])
    usage = fold(ledger.read(run_id_for("t")), Usage())
    assert (usage.total.calls, usage.total.input_tokens) == (3, 30)
    assert len(events(ledger, ModelCalled)) == len(events(ledger, ModelReplied)) == 3


class Killed(BaseException):
    """The process is gone."""


def test_usage_of_an_agent_in_a_larger_graph_is_counted_once(ledger: Ledger, looking: Tool) -> None:
    """Its replies enter the root state when it has ended, it may be in another process."""

    def larger() -> Any:
        saver = TurnledgerSaver(ledger)
        steps = TurnledgerMiddleware(saver)
        graph = StateGraph(MessagesState)
        graph.add_node("agent", agent(None, 2, [looking.tool], middleware=[steps]))
        graph.add_edge(START, "agent")
        return graph.compile(checkpointer=saver)

    def dies(n: int) -> None:
        if n == 1:
            raise Killed

    looking.during = dies
    with pytest.raises(Killed):
        go(larger())
    looking.during = lambda n: None
    assert larger().invoke(None, config())["messages"][-1].text == "done"
    usage = fold(ledger.read(run_id_for("t")), Usage())
    assert (usage.total.calls, usage.total.input_tokens) == (3, 30)


def test_a_run_that_was_killed_after_its_last_call_is_completed(
    ledger: Ledger, looking: Tool
) -> None:
    """The process that goes on has nothing to call, and still the run does not stay open."""

    class Dying(AgentMiddleware):
        def after_agent(self, state: Any, runtime: Any) -> None:
            died.append("here")
            if len(died) == 1:
                raise Killed

    died: list[str] = []

    def graph() -> Any:
        saver = TurnledgerSaver(ledger)
        steps = TurnledgerMiddleware(saver)
        return agent(saver, 2, [looking.tool], middleware=[steps, Dying()]), steps

    first, steps = graph()
    with pytest.raises(Killed):
        go(first)
    steps.release("t")  # as the end of its process does
    assert graph()[0].invoke(None, config())["messages"][-1].text == "done"
    assert ledger.run(run_id_for("t")).status == "completed"
    assert len(events(ledger, ModelCalled)) == 3


def test_a_replay_calls_nothing(saver: TurnledgerSaver, ledger: Ledger, looking: Tool) -> None:
    """Several invocations of a thread, replayed: the same messages, no call, nothing written."""
    graph, steps = made(saver, looking)
    said = [go(graph), go(graph, "again")]
    head, calls = ledger.head(run_id_for("t")), list(looking.calls)
    with steps.replay("t"):
        assert [go(graph), go(graph, "again")] == said
    assert (ledger.head(run_id_for("t")), looking.calls) == (head, calls)
    assert len(graph.get_state(config()).values["messages"]) == len(said[-1])


def test_a_replay_finds_the_first_difference(
    saver: TurnledgerSaver, ledger: Ledger, looking: Tool
) -> None:
    """A changed input is found at the first model call, a changed tool result after it at none."""
    graph, steps = made(saver, looking)
    go(graph)
    (first, *_) = (
        record.version for record in ledger.read(run_id_for("t")) if record.tag == "model.called"
    )
    with pytest.raises(ReplayDivergedError, match=f"version {first} ") as found, steps.replay("t"):
        go(graph, "something else")
    assert '-        "content": "go"' in str(found.value)
    with pytest.raises(ReplayDivergedError, match="step removed"), steps.replay("t"):
        pass
    assert looking.calls == [0, 1]


def test_an_awaited_agent_is_recorded_and_replayed_alike(
    saver: TurnledgerSaver, ledger: Ledger, looking: Tool
) -> None:
    """The async hooks record what the others do, and a replay may be of either colour."""
    graph, steps = made(saver, looking)

    async def awaited() -> list[str]:
        given = {"messages": [HumanMessage("go")]}
        result = await graph.ainvoke(given, config())
        return [message.text for message in result["messages"]]

    said = asyncio.run(awaited())
    assert [one.call_id for one in events(ledger, ToolCallStarted)] == [
        "look:call-0",
        "look:call-1",
    ]
    with steps.replay("t"):
        assert asyncio.run(awaited()) == said
    with steps.replay("t"):
        assert go(graph) == said
    assert looking.calls == [0, 1]


def test_a_branch_performs_its_own_steps(
    saver: TurnledgerSaver, ledger: Ledger, looking: Tool
) -> None:
    """From an older checkpoint a fork goes on: its tools run, and the main line stays."""
    graph, _ = made(saver, looking, 1)
    go(graph)
    head = ledger.head(run_id_for("t"))
    older = [one for one in graph.get_state_history(config()) if one.next == ("tools",)][-1]
    graph.invoke(None, older.config)
    assert looking.calls == [0, 0]
    assert ledger.head(run_id_for("t")) == head
    (fork,) = (info for info in ledger.runs(tags={"langgraph.thread": "t"}) if info.parent)
    assert fork.status == "completed"


def test_a_failed_invocation_can_be_tried_again(
    saver: TurnledgerSaver, ledger: Ledger, looking: Tool
) -> None:
    """A tool's error fails the run; invoked again, the tool is called again, and nothing else."""

    def broken(n: int) -> None:
        if len(looking.calls) == 2:
            raise LookupError("not today")

    looking.during = broken
    graph, _ = made(saver, looking)
    with pytest.raises(LookupError, match="not today"):
        go(graph)
    assert ledger.run(run_id_for("t")).status == "failed"
    assert ledger.worker_of(run_id_for("t")) is None
    result = graph.invoke(None, config())
    assert result["messages"][-1].text == "done"
    assert looking.calls == [0, 1, 1]
    assert len(events(ledger, ModelReplied)) == 3


class OddError(Exception):
    pass


def test_errors_are_raised_alike_live_and_resumed(saver: TurnledgerSaver, looking: Tool) -> None:
    """A class that the middleware was not told of is a StepFailedError, live too."""

    def broken(n: int) -> None:
        raise OddError("no")

    looking.during = broken
    graph, _ = made(saver, looking)
    with pytest.raises(StepFailedError, match="OddError"):
        go(graph)
    graph, _ = made(saver, looking, raises=(OddError,))
    with pytest.raises(OddError, match="no"):
        go(graph, thread="another")


def test_retries_of_other_middleware_are_attempts(
    saver: TurnledgerSaver, ledger: Ledger, looking: Tool
) -> None:
    """A retry in one invocation is another attempt of the same step."""

    def broken(n: int) -> None:
        if len(looking.calls) == 1:
            raise TimeoutError("slow")

    looking.during = broken
    retry = {"max_retries": 2, "initial_delay": 0.0, "jitter": False}
    several = [
        ModelRetryMiddleware(**retry),  # type: ignore[arg-type]
        ToolRetryMiddleware(**retry),  # type: ignore[arg-type]
        TurnledgerMiddleware(saver),
    ]
    graph = agent(saver, 1, [looking.tool], middleware=several)
    assert go(graph)[-1] == "done"
    assert [(one.call_id, one.attempt) for one in events(ledger, ToolCallStarted)] == [
        ("look:call-0", 1),
        ("look:call-0", 2),
    ]


def test_a_tool_may_interrupt_the_graph(
    saver: TurnledgerSaver, ledger: Ledger, looking: Tool
) -> None:
    """LangGraph's interrupt() in a tool leaves the step, and a resume runs the tool again."""
    answers = []
    looking.during = lambda n: answers.append(interrupt("may I?"))
    graph, _ = made(saver, looking, 1)
    given = {"messages": [HumanMessage("go")]}
    assert graph.invoke(given, config())["__interrupt__"][0].value == "may I?"
    assert ledger.worker_of(run_id_for("t")) is None
    assert ledger.run(run_id_for("t")).status == "running"
    result = graph.invoke(Command(resume="yes"), config())
    assert (answers, result["messages"][-1].text) == (["yes"], "done")


def test_an_interrupted_graph_gives_its_run_up(
    saver: TurnledgerSaver, ledger: Ledger, looking: Tool
) -> None:
    """While a person is asked by LangGraph's own means, another process may go on."""
    asking = HumanInTheLoopMiddleware(interrupt_on={"look": True})
    steps = TurnledgerMiddleware(saver)
    graph = agent(saver, 1, [looking.tool], middleware=[asking, steps])
    graph.invoke({"messages": [HumanMessage("go")]}, config())
    assert (looking.calls, ledger.worker_of(run_id_for("t"))) == ([], None)
    assert ledger.run(run_id_for("t")).status == "running"
    approved = Command(resume={"decisions": [{"type": "approve"}]})
    assert graph.invoke(approved, config())["messages"][-1].text == "done"
    assert looking.calls == [0]
    assert ledger.run(run_id_for("t")).status == "completed"


def test_a_call_id_that_comes_again_is_another_step(
    saver: TurnledgerSaver, ledger: Ledger, looking: Tool
) -> None:
    """A model that counts its calls from 0 in every turn does not get an old answer."""

    class Repeating(PlannedModel):
        def _generate(self, messages: Any, *more: Any, **kwargs: Any) -> Any:
            last = max(at for at, one in enumerate(messages) if one.type == "human")
            return super()._generate(messages[last:], *more, **kwargs)

    from langchain.agents import create_agent

    steps = TurnledgerMiddleware(saver)
    graph = create_agent(Repeating(turns=1), [looking.tool], checkpointer=saver, middleware=[steps])
    go(graph), go(graph)
    assert looking.calls == [0, 0]
    with steps.replay("t"):
        go(graph), go(graph)
    assert looking.calls == [0, 0]


def test_steps_in_a_tool_are_inner_steps(
    saver: TurnledgerSaver, ledger: Ledger, looking: Tool
) -> None:
    """A tool's own @step belongs to its call."""

    @step
    def inner(n: int) -> int:
        return n

    looking.during = inner
    go(made(saver, looking, 1)[0])
    assert [one.call_id for one in events(ledger, ToolCallStarted)] == [
        "look:call-0",
        "look:call-0/inner#1",
    ]


def test_an_agent_without_a_thread_runs_in_the_callers_run(tmp_path: Path, looking: Tool) -> None:
    """In a block of the caller's the calls are steps of its run; outside of both they are calls."""
    saver = TurnledgerSaver(tmp_path / "runs.db")
    graph = agent(None, 1, [looking.tool], middleware=[TurnledgerMiddleware(saver)])
    given = {"messages": [HumanMessage("go")]}
    graph.invoke(given)
    assert list(saver.ledger.runs()) == []
    for _ in range(2):
        with run_block("order-17", ledger=tmp_path / "runs.db"):
            graph.invoke(given)
    assert looking.calls == [0, 0]
    assert [one.call_id for one in events(saver.ledger, ToolCallStarted, "order-17")] == [
        "look:call-0"
    ]


def said(ledger: Ledger, name: str) -> list[tuple[str, str]]:
    found = (event.message for event in events(ledger, MessageAppended, name))
    return [(message.role, message.content) for message in found]


@pytest.mark.parametrize("in_a_loop", [False, True], ids=["sync", "async"])
def test_messages_in_a_callers_run_are_recorded_once(
    tmp_path: Path, looking: Tool, in_a_loop: bool
) -> None:
    """An interrupted tool's run shows what was said until then, and goes on with it.

    A secret in a message does not make it another one.
    """
    saver = TurnledgerSaver(tmp_path / "runs.db")
    steps = TurnledgerMiddleware(saver)
    graph = agent(None, 1, [looking.tool], middleware=[steps], system_prompt="Be brief.")
    given = {"messages": [HumanMessage("go, sk-ant-api03-" + "a1B2" * 24)]}

    async def arun() -> None:
        async with run_block("order-17", ledger=tmp_path / "runs.db"):
            await graph.ainvoke(given)

    def run() -> None:
        with run_block("order-17", ledger=tmp_path / "runs.db"):
            graph.invoke(given)

    def interrupted(n: int) -> None:
        raise KeyboardInterrupt

    looking.during = interrupted
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(arun()) if in_a_loop else run()
    before = said(saver.ledger, "order-17")
    assert [role for role, _ in before] == ["system", "user", "assistant"]
    looking.during = bool
    asyncio.run(arun()) if in_a_loop else run()
    after = said(saver.ledger, "order-17")
    assert after == [*before, ("tool", "saw 0"), ("assistant", "done")]
    replied = events(saver.ledger, ModelReplied, "order-17")
    messages = [one.message for one in events(saver.ledger, MessageAppended, "order-17")]
    assert [one.message_id for one in replied] == [
        one.message_id for one in messages if one.role == "assistant"
    ]


@pytest.mark.parametrize("thread", ["order-17", "other"])
def test_messages_of_a_thread_in_a_callers_run_are_recorded_once(
    tmp_path: Path, looking: Tool, thread: str
) -> None:
    """A saver records the messages of the thread that is the run; those of another are its own."""
    saver = TurnledgerSaver(tmp_path / "runs.db")
    with run_block("order-17", ledger=tmp_path / "runs.db"):
        go(made(saver, looking, 1)[0], thread=thread)
    for name in {"order-17", thread}:
        assert [role for role, _ in said(saver.ledger, name)] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]


def test_a_thread_that_another_process_has_is_refused(tmp_path: Path, looking: Tool) -> None:
    """Two workers on one thread: the second one gets an error, before anything is called."""
    url = tmp_path / "runs.db"
    with Ledger.open(url) as one, Ledger.open(url) as other:
        graph, _ = made(TurnledgerSaver(one), looking)
        seen: list[str] = []

        def during(n: int) -> None:
            with pytest.raises(RunClaimedError):
                go(made(TurnledgerSaver(other), Tool())[0])
            seen.append("refused")

        looking.during = during
        go(graph)
    assert seen == ["refused", "refused"]


def test_an_unknown_policy_is_refused(saver: TurnledgerSaver) -> None:
    """A misspelt policy is an error when the agent is made, not after a crash."""
    with pytest.raises(InvalidInputError, match="'aks' of tool 'pay'"):
        TurnledgerMiddleware(saver, on_interrupt={"pay": "aks"})  # type: ignore[dict-item]

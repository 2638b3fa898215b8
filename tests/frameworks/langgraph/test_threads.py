"""Threads as runs: branches are forks, messages are conversations, nothing is stored twice."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, MessagesState, StateGraph

from tests.e2e.driving import InProcess
from tests.frameworks.langgraph.graphs import agent, config, counter
from turnledger.adapters.frameworks.langgraph.stored_lists import NAME
from turnledger.langgraph import CheckpointNotRecordableError, TurnledgerSaver
from turnledger.ledger import (
    CustomEvent,
    Ledger,
    MessageAppended,
    ModelReplied,
    RedactedStateError,
    run_id_for,
)


def go(graph: Any, where: dict[str, Any]) -> Any:
    return graph.invoke({"messages": [HumanMessage("go")]}, where)


def seen(saver: Any, where: dict[str, Any]) -> list[Any]:
    """A thread's checkpoints, as far as they do not depend on the saver."""
    return [
        (one.checkpoint["channel_values"], one.metadata.get("step"), one.pending_writes)
        for one in saver.list(where)
    ]


def test_a_thread_is_the_run_with_its_name(saver: TurnledgerSaver, ledger: Ledger) -> None:
    """`turnledger messages THREAD` finds a thread by the id that the program gave it."""
    go(agent(saver, 2), config("order-17"))
    (run,) = ledger.runs()
    assert run.run_id == run_id_for("order-17")
    assert run.tags == {"langgraph.thread": "order-17", "name": "order-17"}
    assert ledger.verify(run.run_id).ok


def test_messages_of_the_state_are_the_runs_conversation(
    saver: TurnledgerSaver, ledger: Ledger
) -> None:
    """Each message that enters the root state is recorded once, in order, with its tool calls."""
    result = go(agent(saver, 2), config())
    records = list(ledger.read(run_id_for("t")))
    said = [r.event.message for r in records if isinstance(r.event, MessageAppended)]
    assert [one.content for one in said] == [m.text for m in result["messages"]]
    assert [one.role for one in said] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [one.sequence for one in said] == list(range(6))
    assert said[1].tool_calls[0].call_id == said[2].tool_call_id == "call-0"
    assert type(said[1].content) is str
    replies = [r.event for r in records if isinstance(r.event, ModelReplied)]
    assert [one.usage.input_tokens for one in replies] == [10, 10, 10]
    assert {one.model for one in replies} == {"planned"}


def test_commands_show_a_thread(tmp_path: Path) -> None:
    """messages, tools, usage and timeline work on a thread that only the saver recorded."""
    command = InProcess(tmp_path / "runs.db")
    with command.ledger() as ledger:
        go(agent(TurnledgerSaver(ledger), 2), config())
    shown = {
        name: command(name, run_id_for("t")) for name in ("messages", "tools", "usage", "timeline")
    }
    assert {name: found.code for name, found in shown.items()} == dict.fromkeys(shown, 0)
    assert "go" in shown["messages"].out
    assert "call-1" in shown["tools"].out
    assert "planned" in shown["usage"].out


def test_time_travel_forks_the_run(saver: TurnledgerSaver, ledger: Ledger) -> None:
    """A branch from an older checkpoint is a fork at it, with a conversation of its own."""
    graph = agent(saver, 1)
    go(graph, config())
    first = [one for one in graph.get_state_history(config()) if len(one.values["messages"]) == 2][
        -1
    ]
    graph.update_state(first.config, {"messages": [HumanMessage("rather this")]})
    runs = list(ledger.runs(tags={"langgraph.thread": "t"}))
    assert len(runs) == 2
    (fork,) = [run for run in runs if run.parent is not None]
    assert fork.parent == run_id_for("t")

    def texts(run: Any) -> list[str]:
        events = (record.event for record in ledger.read(run))
        return [e.message.content[:11] for e in events if isinstance(e, MessageAppended)]

    assert texts(fork.run_id) == ["go", "x" * 11, "rather this"]
    assert texts(run_id_for("t"))[-1] == "done"
    assert graph.get_state(config()).values["messages"][-1].text == "rather this"
    assert ledger.verify_all().ok


def test_a_branch_goes_on_in_its_own_run(saver: TurnledgerSaver, ledger: Ledger) -> None:
    """What follows a branch's checkpoint goes to the branch, and what the main line is, stays."""
    graph = counter(saver)
    graph.invoke({"words": ["a"]}, config())
    history = list(graph.get_state_history(config()))
    branch = graph.update_state(history[2].config, {"words": ["b"], "count": 1})
    main = ledger.head(run_id_for("t"))
    result = graph.invoke(None, branch)
    assert result["words"] == ["a", "1", "b", "2", "3"]
    assert ledger.head(run_id_for("t")) == main
    assert len(list(ledger.runs())) == 2
    assert graph.get_state(history[0].config).values["words"] == ["a", "1", "2", "3"]


def test_subgraphs_never_fork(saver: TurnledgerSaver, ledger: Ledger) -> None:
    """Checkpoints of namespaces go to the run of the root checkpoint that they belong to."""
    inner = agent(None, 1)
    outer = StateGraph(MessagesState)
    outer.add_node("inner", inner)
    outer.add_edge(START, "inner")
    graph = outer.compile(checkpointer=saver)
    for _ in range(3):
        go(graph, config())
    assert len(list(ledger.runs())) == 1
    namespaces = {one.config["configurable"]["checkpoint_ns"] for one in saver.list(config())}
    assert len(namespaces) == 4


@pytest.mark.parametrize("steps", [100, 200])
def test_growth_is_flat(saver: TurnledgerSaver, ledger: Ledger, steps: int) -> None:
    """A step of an agent costs the same however many there were: lists are recorded as deltas."""
    go(agent(saver, steps // 2), config())
    size = sum(len(record.data) for record in ledger.read(run_id_for("t")))
    assert size < steps * 4000


def test_a_subgraph_is_not_given_the_history_again(saver: TurnledgerSaver, ledger: Ledger) -> None:
    """The first checkpoint of a subgraph refers to the messages of the graph that it is in."""
    outer = StateGraph(MessagesState)
    outer.add_node("inner", agent(None, 10))
    outer.add_edge(START, "inner")
    graph = outer.compile(checkpointer=saver)
    sizes = []
    for _ in range(4):
        before = ledger.head(run_id_for("t"))
        go(graph, config())
        records = ledger.read(run_id_for("t"), after=before) if before else ()
        sizes.append(sum(len(record.data) for record in records))
    assert sizes[3] < sizes[1] * 1.3


def test_a_cold_saver_stores_no_list_again(ledger: Ledger) -> None:
    """A process that did not write the last checkpoint still records only what differs."""
    go(agent(TurnledgerSaver(ledger), 30), config())
    before = ledger.head(run_id_for("t"))
    graph = agent(TurnledgerSaver(ledger), 31)
    graph.invoke({"messages": [HumanMessage("more")]}, config())
    new = sum(len(record.data) for record in ledger.read(run_id_for("t"), after=before))
    assert new < 12_000
    rows = dict(ledger.derived_data(NAME).items())
    assert sum(map(len, rows.values())) < 65 * 1300


def test_a_thread_is_read_without_its_derived_data(ledger: Ledger) -> None:
    """Derived data only makes loading faster: dropped, everything is still found."""
    saver = TurnledgerSaver(ledger)
    go(agent(saver, 30), config())
    kept = seen(saver, config())
    ledger.derived_data(NAME).drop()
    assert seen(TurnledgerSaver(ledger), config()) == kept


@dataclass
class Label:
    """An object in a message."""

    text: str


class OwnSerializer(JsonPlusSerializer):
    """A serializer of somebody else's, which is asked for every object."""


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("kind", [JsonPlusSerializer, OwnSerializer])
def test_stored_items_are_made_as_langgraph_makes_them(
    ledger: Ledger, kind: type[JsonPlusSerializer]
) -> None:
    """Messages, those with objects in them or that are invalid now, and whatever else there is."""
    odd = HumanMessage("x", additional_kwargs={"label": Label("a"), "n": b"\0\n\xff"})
    invalid = HumanMessage("x")
    invalid.name = 5  # type: ignore[assignment]
    blocks = HumanMessage("x")
    blocks.__pydantic_extra__ = {"content_blocks": [{"type": "text", "text": "b"}]}
    said = [
        SystemMessage("ü\0"),
        HumanMessage("y", id="1"),
        AIMessage("z", tool_calls=[{"name": "f", "args": {"n": 1}, "id": "c"}]),
        ToolMessage("w", tool_call_id="c", status="error"),
        blocks,
    ]
    items: list[Any] = said * 10 + [odd] + said * 5 + [invalid] + said * 5
    items += [
        AIMessageChunk("c"),
        "text",
        1,
        [1, "x"],
        ["langchain_core.messages.ai", "AIMessage", {}, ""],
    ] * 8
    found = []
    serde = kind(allowed_msgpack_modules=[Label])
    for saver in (TurnledgerSaver(ledger, serde=serde), InMemorySaver(serde=serde)):
        where: Any = config(checkpoint_ns="")
        for size in range(0, len(items), 3):
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"list": items[:size]}
            checkpoint["channel_versions"] = {"list": size + 1}
            where = saver.put(where, checkpoint, {}, {"list": size + 1})
        cold = TurnledgerSaver(ledger, serde=serde) if isinstance(saver, TurnledgerSaver) else saver
        (last,) = cold.list(config(), limit=1)
        found.append(last.checkpoint["channel_values"]["list"])
    assert len(dict(ledger.derived_data(NAME).items())) >= 6
    assert found[0] == found[1]
    assert [*map(type, found[0])] == [*map(type, found[1])]
    assert [*map(_set_fields, found[0])] == [*map(_set_fields, found[1])]
    assert len(found[0]) == len(items) // 3 * 3


def _set_fields(item: Any) -> Any:
    return item.model_fields_set if isinstance(item, BaseMessage) else None


def test_events_are_readable_json(saver: TurnledgerSaver, ledger: Ledger) -> None:
    """A person can read a thread's state in the ledger: no base64, no pickles."""
    go(agent(saver, 1), config())
    events = [r.event for r in ledger.read(run_id_for("t")) if isinstance(r.event, CustomEvent)]
    assert {event.kind for event in events} == {"langgraph.checkpoint", "langgraph.writes"}
    text = "".join(r.data for r in ledger.read(run_id_for("t")))
    assert "$bytes" not in text
    assert "$packed" not in text
    assert '"content":"xxx' in text


@dataclass
class Order:
    amount: int


class Orders(MessagesState):
    order: Order


def test_a_class_that_was_not_allowed_is_not_imported(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """Data in a ledger can't have a class imported that the program did not allow."""
    graph = StateGraph(Orders)
    graph.add_node("buy", lambda state: {"order": Order(120)})
    graph.add_edge(START, "buy")
    go(graph.compile(checkpointer=TurnledgerSaver(ledger)), config())
    with caplog.at_level(logging.WARNING):
        strict = graph.compile(checkpointer=TurnledgerSaver(ledger)).get_state(config())
    assert strict.values["order"] == {"amount": 120}
    allowed = JsonPlusSerializer(allowed_msgpack_modules=[Order])
    graph = graph.compile(checkpointer=TurnledgerSaver(ledger, serde=allowed))
    assert graph.get_state(config()).values["order"] == Order(120)


class Shift:
    """A cipher for tests."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "shift", bytes((one + 1) % 256 for one in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return bytes((one - 1) % 256 for one in ciphertext)


def test_encrypted_states_stay_encrypted(ledger: Ledger) -> None:
    """What a serializer encrypts is in the ledger as it gave it."""
    saver = TurnledgerSaver(ledger, serde=EncryptedSerializer(Shift()))
    graph = counter(saver, 5, say=lambda count: f"hidden {count}")
    words = graph.invoke({"words": []}, config())["words"]
    assert graph.get_state(config()).values["words"] == words
    assert "hidden" not in "".join(record.data for record in ledger.read(run_id_for("t")))


def test_encrypted_states_go_on_in_another_process(ledger: Ledger) -> None:
    """A new saver takes a state over in which an encrypted value is a reference."""
    serde = EncryptedSerializer(Shift())
    graph = counter(TurnledgerSaver(ledger, serde=serde))
    words = graph.invoke({"words": []}, config())["words"]
    graph.update_state(config(), {"count": 7})
    later = counter(TurnledgerSaver(ledger, serde=serde))
    later.update_state(config(), {"count": 8})
    assert later.get_state(config()).values == {"words": words, "count": 8}


def test_pickles_are_refused(ledger: Ledger) -> None:
    """A value that could only be pickled is an error that names it; nothing is written."""
    serde = JsonPlusSerializer(pickle_fallback=True)
    saver = TurnledgerSaver(ledger, serde=serde)
    checkpoint = {**empty_checkpoint(), "channel_values": {"a": object()}}
    where = config(checkpoint_ns="")
    with pytest.raises(CheckpointNotRecordableError, match="type object"):
        saver.put(where, checkpoint, {}, {"a": 1})
    assert saver.get_tuple(where) is None


def test_a_secret_in_a_state_is_refused(saver: TurnledgerSaver, ledger: Ledger) -> None:
    """A redacted state would be restored as another one: that is an error, not a silent change."""
    secret = "sk-proj-" + "Ab3dE5gH1jK9" * 4
    with pytest.raises(RedactedStateError, match="redactor"):
        counter(saver).invoke({"words": [secret]}, config())
    assert not any(secret in record.data for record in ledger.tail())


def test_bytes_come_back(saver: TurnledgerSaver, ledger: Ledger) -> None:
    """Short bytes stand in the event, long ones are blobs; odd keys and numbers survive too."""
    values = {
        "short": b"\x00\xff",
        "long": bytes(range(256)) * 100,
        "array": bytearray(b"ab"),
        "nan": [float("inf"), -0.0, 1.0, 1, True],
        "map": {1: "a", "$ext": 2, (1, "x"): None},
        "deep": [
            [
                [
                    [
                        [
                            [
                                [
                                    [
                                        [
                                            [
                                                [
                                                    [
                                                        [
                                                            [
                                                                [
                                                                    [
                                                                        [
                                                                            [
                                                                                [
                                                                                    [
                                                                                        [
                                                                                            [
                                                                                                [
                                                                                                    [
                                                                                                        [
                                                                                                            [
                                                                                                                [
                                                                                                                    [
                                                                                                                        [
                                                                                                                            [
                                                                                                                                [
                                                                                                                                    [
                                                                                                                                        [
                                                                                                                                            [
                                                                                                                                                [
                                                                                                                                                    [
                                                                                                                                                        [
                                                                                                                                                            [
                                                                                                                                                                [
                                                                                                                                                                    [
                                                                                                                                                                        [
                                                                                                                                                                            [
                                                                                                                                                                                [
                                                                                                                                                                                    [
                                                                                                                                                                                        [
                                                                                                                                                                                            [
                                                                                                                                                                                                [
                                                                                                                                                                                                    [
                                                                                                                                                                                                        [
                                                                                                                                                                                                            [
                                                                                                                                                                                                                "end"
                                                                                                                                                                                                            ]
                                                                                                                                                                                                        ]
                                                                                                                                                                                                    ]
                                                                                                                                                                                                ]
                                                                                                                                                                                            ]
                                                                                                                                                                                        ]
                                                                                                                                                                                    ]
                                                                                                                                                                                ]
                                                                                                                                                                            ]
                                                                                                                                                                        ]
                                                                                                                                                                    ]
                                                                                                                                                                ]
                                                                                                                                                            ]
                                                                                                                                                        ]
                                                                                                                                                    ]
                                                                                                                                                ]
                                                                                                                                            ]
                                                                                                                                        ]
                                                                                                                                    ]
                                                                                                                                ]
                                                                                                                            ]
                                                                                                                        ]
                                                                                                                    ]
                                                                                                                ]
                                                                                                            ]
                                                                                                        ]
                                                                                                    ]
                                                                                                ]
                                                                                            ]
                                                                                        ]
                                                                                    ]
                                                                                ]
                                                                            ]
                                                                        ]
                                                                    ]
                                                                ]
                                                            ]
                                                        ]
                                                    ]
                                                ]
                                            ]
                                        ]
                                    ]
                                ]
                            ]
                        ]
                    ]
                ]
            ]
        ],
        "none": None,
    }
    checkpoint = {**empty_checkpoint(), "channel_values": values}
    checkpoint["channel_versions"] = dict.fromkeys(values, 1)
    where = config(checkpoint_ns="")
    saver.put(where, checkpoint, {}, dict.fromkeys(values, 1))
    found = TurnledgerSaver(ledger).get_tuple(where)
    assert found is not None
    assert repr(found.checkpoint["channel_values"]) == repr(values)
    assert len(ledger.blob(next(iter(_blobs(ledger))))) == 25600


def _blobs(ledger: Ledger) -> list[str]:
    return [
        name
        for record in ledger.tail()
        if isinstance(record.event, CustomEvent)
        for name in record.event.blobs
    ]


def test_writes_that_come_before_their_checkpoint_are_kept(
    saver: TurnledgerSaver, ledger: Ledger
) -> None:
    """LangGraph stores checkpoints and writes in the background, in any order."""
    checkpoint = empty_checkpoint()
    where = config(checkpoint_ns="")
    saver.put_writes(config(checkpoint_ns="", checkpoint_id=checkpoint["id"]), [("a", 1)], "task")
    assert saver.get_tuple(where) is None
    saver.put(where, checkpoint, {}, {})
    found = TurnledgerSaver(ledger).get_tuple(where)
    assert found is not None
    assert found.pending_writes == [("task", "a", 1)]


def test_processes_share_a_thread(tmp_path: Path) -> None:
    """Savers that append to one thread at once lose nothing: each retries with what it reads."""
    url = tmp_path / "runs.db"
    with Ledger.open(url) as one, Ledger.open(url) as other:
        savers = [TurnledgerSaver(one), TurnledgerSaver(other)]
        checkpoint = empty_checkpoint()
        where = config(checkpoint_ns="")
        savers[0].put(where, checkpoint, {}, {})
        there = config(checkpoint_ns="", checkpoint_id=checkpoint["id"])

        def write(number: int) -> None:
            savers[number % 2].put_writes(there, [("a", number)], f"task {number:02}")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(20)))
        for saver in savers:
            found = saver.get_tuple(where)
            assert found is not None
            assert [value for _, _, value in found.pending_writes or ()] == list(range(20))


def test_a_copy_shares_the_records(saver: TurnledgerSaver, ledger: Ledger) -> None:
    """A copied thread is a fork: it holds no event twice, and goes on by itself."""
    graph = counter(saver)
    graph.invoke({"words": ["a"]}, config())
    graph.update_state(list(graph.get_state_history(config()))[2].config, {"words": ["b"]})
    saver.copy_thread("t", "copy")
    assert seen(saver, config("copy")) == seen(saver, config("t"))
    graph.invoke({"words": ["c"]}, config("copy"))
    assert graph.get_state(config()).values["words"] == ["a", "1", "b"]
    assert graph.get_state(config("copy")).values["words"][:4] == ["a", "1", "b", "c"]
    saver.delete_thread("t")
    assert list(saver.list(config("t"))) == []
    assert graph.get_state(config("copy")).values["words"][:4] == ["a", "1", "b", "c"]
    assert seen(TurnledgerSaver(ledger), config("copy")) == seen(saver, config("copy"))


def test_deleting_marks_and_keeps_records(saver: TurnledgerSaver, ledger: Ledger) -> None:
    """A deleted thread is not found, can be begun again, and its records are still there."""
    graph = counter(saver)
    graph.invoke({"words": ["a"]}, config())
    before = ledger.head(run_id_for("t"))
    saver.delete_thread("t")
    assert saver.get_tuple(config()) is None
    assert ledger.head(run_id_for("t")) == before + 1
    graph.invoke({"words": ["b"]}, config())
    assert graph.get_state(config()).values["words"] == ["b", "1", "2", "3"]
    assert len(seen(TurnledgerSaver(ledger), config())) == 5


def test_an_agent_runs_the_same_as_in_memory(saver: TurnledgerSaver) -> None:
    """What a graph sees through the saver is what it sees through LangGraph's own."""
    graphs = [agent(saver, 20), agent(InMemorySaver(), 20)]
    ours, theirs = ([m.text for m in go(graph, config())["messages"]] for graph in graphs)
    assert ours == theirs
    ours, theirs = (
        [
            (len(one.values.get("messages", ())), one.next)
            for one in graph.get_state_history(config())
        ]
        for graph in graphs
    )
    assert ours == theirs


def test_a_thread_of_another_saver_goes_on(saver: TurnledgerSaver) -> None:
    """Checkpoints that are copied from LangGraph's own savers have versions that are texts."""
    theirs = InMemorySaver()
    counter(theirs).invoke({"words": ["a"]}, config())
    for one in reversed(list(theirs.list(config()))):
        where = {**one.config, "configurable": {**one.config["configurable"]}}
        where["configurable"].pop("checkpoint_id")
        if one.parent_config is not None:
            parent = one.parent_config["configurable"]["checkpoint_id"]
            where["configurable"]["checkpoint_id"] = parent
        saver.put(where, one.checkpoint, one.metadata, one.checkpoint["channel_versions"])
    result = counter(saver).invoke({"words": ["b"]}, config())
    assert result["words"] == ["a", "1", "2", "3", "b", "4", "5", "6"]

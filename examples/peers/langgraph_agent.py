from dataclasses import dataclass
from uuid import uuid4

from langchain.agents import create_agent
from langchain_core.callbacks import get_usage_metadata_callback
from langgraph.checkpoint.sqlite import SqliteSaver


@dataclass
class Triage:
    priority: str
    reply: str


def credit(euros: int, reason: str = "") -> str:
    """Credit an amount to the customer."""
    return f"Credited {euros} EUR."


def make_agent(saver):
    return create_agent(
        "openai:gpt-5",
        name="triage",
        system_prompt="Triage the ticket.",
        tools=[credit],
        response_format=Triage,
        checkpointer=saver,
    )


if __name__ == "__main__":
    config = {"configurable": {"thread_id": str(uuid4())}}
    with SqliteSaver.from_conn_string("runs.db") as saver, get_usage_metadata_callback() as usage:
        result = make_agent(saver).invoke({"messages": [("user", "My invoice is wrong.")]}, config, durability="sync")
    tokens = sum(used["total_tokens"] for used in usage.usage_metadata.values())
    print(config["configurable"]["thread_id"], result["structured_response"].priority, tokens)

from dataclasses import dataclass

from dbos import DBOS
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability


@dataclass
class Triage:
    priority: str
    reply: str


agent = Agent(
    "openai:gpt-5",
    name="triage",
    instructions="Triage the ticket.",
    output_type=Triage,
    capabilities=[DBOSDurability()],
)


@agent.tool_plain
@DBOS.step()
async def credit(euros: int, reason: str = "") -> str:
    """Credit an amount to the customer."""
    return f"Credited {euros} EUR."


@DBOS.workflow()
def triage(ticket: str) -> tuple[str, int]:
    result = agent.run_sync(ticket)
    return result.output.priority, result.usage.total_tokens


if __name__ == "__main__":
    DBOS(config={"name": "support", "system_database_url": "sqlite:///runs.db"})
    DBOS.launch()
    handle = DBOS.start_workflow(triage, "My invoice is wrong.")
    print(handle.workflow_id, *handle.get_result())
    DBOS.destroy()

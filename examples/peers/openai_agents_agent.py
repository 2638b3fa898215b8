from dataclasses import dataclass

from agents import Agent, Runner, SQLiteSession, function_tool


@dataclass
class Triage:
    priority: str
    reply: str


@function_tool
def credit(euros: int, reason: str = "") -> str:
    """Credit an amount to the customer."""
    return f"Credited {euros} EUR."


agent = Agent("support/triage", model="gpt-5", instructions="Triage the ticket.", tools=[credit], output_type=Triage)
if __name__ == "__main__":
    session = SQLiteSession("ticket-1", "runs.db")
    result = Runner.run_sync(agent, "My invoice is wrong.", session=session)
    print(session.session_id, result.final_output.priority, result.context_wrapper.usage.total_tokens)

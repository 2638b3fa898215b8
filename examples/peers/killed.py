"""One agent of this folder in a process of its own: killed inside its tool, or going on after it.

    python killed.py AGENT kill     run it; SIGKILL when `credit` has been entered
    python killed.py AGENT go-on    go on in the way that the framework's documentation says

Each entry into `credit` is a line in `credits.txt`.
"""

import os
import runpy
import signal
import sys
import threading
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def watch(file: Path, *, kill: bool) -> None:
    """Count the calls of the agent's tool, in whatever thread, and die in the first."""

    def entered(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name == "credit" and Path(code.co_filename) == file:
            with Path("credits.txt").open("a") as book:
                book.write("credited\n")
            if kill:
                os.kill(os.getpid(), signal.SIGKILL)

    threading.settrace(entered)
    sys.settrace(entered)


def go_on_turnledger(module: dict[str, Any]) -> object:
    (run,) = module["agent"].list_recoverable(ledger="runs.db")
    try:
        return module["agent"].recover(run, ledger="runs.db").output.priority
    except Exception as error:
        return type(error).__name__


def go_on_pydantic_ai(module: dict[str, Any]) -> object:
    return module["agent"].run_sync("My invoice is wrong.").output.priority


def go_on_pydantic_ai_dbos(module: dict[str, Any]) -> object:
    from dbos import DBOS

    DBOS(config={"name": "support", "system_database_url": "sqlite:///runs.db"})
    DBOS.launch()
    (run,) = DBOS.list_workflows()
    priority, _ = DBOS.retrieve_workflow(run.workflow_id).get_result()
    DBOS.destroy()
    return priority


def go_on_openai_agents(module: dict[str, Any]) -> object:
    from agents import Runner, SQLiteSession

    session = SQLiteSession("ticket-1", "runs.db")
    result = Runner.run_sync(module["agent"], "My invoice is wrong.", session=session)
    return result.final_output.priority


def go_on_langgraph(module: dict[str, Any]) -> object:
    from langgraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver.from_conn_string("runs.db") as saver:
        config: Any = next(saver.list(None)).config["configurable"]
        thread = {"configurable": {"thread_id": config["thread_id"]}}
        return module["make_agent"](saver).invoke(None, thread)["structured_response"].priority


def main(name: str, mode: str) -> None:
    file = HERE / f"{name}_agent.py"
    watch(file, kill=mode == "kill")
    if mode == "kill":
        runpy.run_path(str(file), run_name="__main__")
    else:
        print(globals()[f"go_on_{name}"](runpy.run_path(str(file), run_name="agent")))


if __name__ == "__main__":
    main(*sys.argv[1:])

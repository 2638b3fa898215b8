"""The agent loop: prompts, tools, sessions, checkpoints, recovery and replay.

The names that most programs need are here, imported on first use and listed in `__init__.pyi`.
The others are in the sub-packages: `runtime.agent.tools`, `runtime.session` and so on.
"""

if __name__ != "turnledger.runtime":  # a bare import would be a second copy of every class
    raise ImportError("Import turnledger.runtime, not the bare name runtime.")

from turnledger._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)

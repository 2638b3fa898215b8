"""A workspace for agents: files, a sandbox, a plan and a digest, as sections of a prompt."""

from turnledger.runtime.workspace.sandbox import (
    LIMITS,
    SandboxCommand,
    SandboxLimits,
    SandboxOutcome,
    SandboxRunner,
    default_runner,
)

__all__ = [
    "LIMITS",
    "SandboxCommand",
    "SandboxLimits",
    "SandboxOutcome",
    "SandboxRunner",
    "default_runner",
]

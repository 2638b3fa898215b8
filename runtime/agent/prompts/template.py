"""PromptTemplate: the sections, tools and output type of a prompt, before parameters are bound.

A template is checked when it is made: names, keys that are given twice, tools with the same
name, an output type without a schema. Rendering is `runtime.agent.prompts.render`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Generic

from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import short_repr
from turnledger.runtime.agent.generics import OutputT, Subscripted
from turnledger.runtime.agent.prompts.open_sections_tool import OPEN_SECTIONS, OPEN_SECTIONS_NAME
from turnledger.runtime.agent.prompts.output import OutputSpec
from turnledger.runtime.agent.prompts.sections import Section
from turnledger.runtime.agent.tools.tool import Tool
from turnledger.runtime.errors import PromptDefinitionError, SchemaError

# Both can be steps of a path in a file system, a URL or a listing.
_STEP = r"[A-Za-z0-9_-][A-Za-z0-9_.-]*"
_NS = rf"{_STEP}(/{_STEP})*"
_LONGEST = 200


@explain_methods()
class PromptTemplate(Subscripted, Generic[OutputT]):
    """The definition of a prompt: `PromptTemplate[Out](ns=..., key=..., sections=[...])`.

    Out is the type of the structured output: a dataclass, a msgspec Struct, a pydantic model,
    or a list of one of these. Without a subscript, and with `str`, the answer is text.
    """

    def __init__(
        self,
        *,
        ns: str,
        key: str,
        sections: Iterable[Section[Any]] = (),
        name: str | None = None,
        allow_extra_keys: bool = False,
        inject_output_instructions: bool = True,
    ) -> None:
        """Define a prompt; PromptDefinitionError if it is invalid.

        Args:
            ns: Namespace; steps of letters, digits, '.', '_' and '-' between '/'.
            key: Identifies the prompt within the namespace.
            sections: The sections, in order.
            name: For display; by default namespace and key.
            allow_extra_keys: Accept keys in the output that its type does not have.
            inject_output_instructions: End the prompt with instructions for the output. An
                adapter whose provider enforces schemas turns that off.
        """
        self.ns = _checked("ns", ns, _NS)
        self.key = _checked("key", key, _STEP)
        self.name = name
        self.sections = tuple(sections)
        self.allow_extra_keys = allow_extra_keys
        self.inject_output_instructions = inject_output_instructions
        self._check_sections()
        self._check_tools()
        self.output: OutputSpec[OutputT] | None = self._output()

    @property
    def path(self) -> str:
        """Namespace and key: "ns/key"."""
        return f"{self.ns}/{self.key}"

    def walk(self) -> Iterator[tuple[str, int, Section[Any]]]:
        """Iterate over all sections in order, with path and depth."""
        for section in self.sections:
            yield from section.walk()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(ns={self.ns!r}, key={self.key!r})"

    def _check_sections(self) -> None:
        for section in self.sections:
            if not isinstance(section, Section):
                raise PromptDefinitionError(
                    f"invalid section {short_repr(section)}: expected a Section, such as "
                    "MarkdownSection",
                    prompt=self.path,
                )
        seen: set[str] = set()
        for path, _, _ in self.walk():
            if path in seen:
                raise PromptDefinitionError(
                    "two sections have this key: rename one",
                    prompt=self.path,
                    section=path,
                )
            seen.add(path)

    def _check_tools(self) -> None:
        """Check that names are unique; the same tool may be in several sections."""
        owners: dict[str, tuple[str, Tool[Any, Any]]] = {}
        for path, _, section in self.walk():
            for tool in section.tools:
                owner, other = owners.setdefault(tool.name, (path, tool))
                if other is not tool:
                    raise PromptDefinitionError(
                        f"its tool {tool.name!r} has the name of another tool, in section "
                        f"{owner!r}: rename one of them",
                        prompt=self.path,
                        section=path,
                    )
                if tool.name == OPEN_SECTIONS_NAME and tool is not OPEN_SECTIONS:
                    raise PromptDefinitionError(
                        f"the tool name {tool.name!r} is reserved for opening sections: rename "
                        "this tool",
                        prompt=self.path,
                        section=path,
                    )

    def _output(self) -> OutputSpec[Any] | None:
        if not self.type_arguments:
            return None
        try:
            return OutputSpec.of(self.type_arguments[0], allow_extra_keys=self.allow_extra_keys)
        except SchemaError as error:
            raise PromptDefinitionError(f"its output: {error}", prompt=self.path) from error


def _checked(what: str, value: object, pattern: str) -> str:
    if isinstance(value, str) and re.fullmatch(pattern, value) and len(value) <= _LONGEST:
        return value
    steps = "steps of these between '/'" if pattern is _NS else "in one step"
    raise PromptDefinitionError(
        f"Invalid prompt {what} {value!r}: expected 1 to {_LONGEST} letters, digits, '.', '_' and "
        f"'-', not beginning with '.', {steps}."
    )

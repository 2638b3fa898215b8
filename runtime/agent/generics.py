"""Generic classes whose instances know what they were subscripted with.

`PromptTemplate[Review](...)` has to know that its output is a Review while it is made, and
`typing` tells an instance only afterwards. So a subscript with real types is a subclass here,
one for each set of types; with type variables it is what `typing` makes of it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    # Type checkers need not be told what an unsubscripted Tool(...) or `-> ToolResult` is.
    OutputT = TypeVarWithDefault("OutputT", default=Any)
    ParamsT = TypeVarWithDefault("ParamsT", default=Any)
    ResultT = TypeVarWithDefault("ResultT", default=Any)
else:
    OutputT = TypeVar("OutputT")
    ParamsT = TypeVar("ParamsT")
    ResultT = TypeVar("ResultT")


class Subscripted:
    """To be named before `Generic[...]` among a class's bases."""

    type_arguments: ClassVar[tuple[Any, ...]] = ()

    def __class_getitem__(cls, arguments: Any) -> Any:
        # typing checks how many there may be.
        alias = super().__class_getitem__(arguments)  # type: ignore[misc]
        given = arguments if isinstance(arguments, tuple) else (arguments,)
        if any(isinstance(one, TypeVar) for one in given):
            return alias
        generic: Any = cls
        return _subclass(generic, tuple(type(None) if one is None else one for one in given))


@lru_cache(maxsize=1024)
def _subclass(cls: Any, arguments: tuple[Any, ...]) -> Any:
    names = ", ".join(getattr(one, "__name__", repr(one)) for one in arguments)
    about = {
        "type_arguments": arguments,
        "__module__": cls.__module__,
        "__doc__": cls.__doc__,
        "__qualname__": f"{cls.__qualname__}[{names}]",
    }
    return type(f"{cls.__name__}[{names}]", (cls,), about)

"""Generic classes whose instances know their type arguments.

`PromptTemplate[Review](...)` needs the output type Review in `__init__`, and `typing` sets
`__orig_class__` only afterwards. So a subscript with real types makes a subclass here, one for
each set of types; a subscript with type variables is left to `typing`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    # With defaults, an unsubscripted Tool(...) or `-> ToolResult` needs no annotation.
    OutputT = TypeVarWithDefault("OutputT", default=Any)
    ParamsT = TypeVarWithDefault("ParamsT", default=Any)
    ResultT = TypeVarWithDefault("ResultT", default=Any)
else:
    OutputT = TypeVar("OutputT")
    ParamsT = TypeVar("ParamsT")
    ResultT = TypeVar("ResultT")


class Subscripted:
    """Base class that keeps the type arguments; name it before `Generic[...]`."""

    type_arguments: ClassVar[tuple[Any, ...]] = ()

    def __class_getitem__(cls, arguments: Any) -> Any:
        # typing checks the number of arguments.
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

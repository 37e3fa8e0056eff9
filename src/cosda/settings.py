"""Settings are dataclasses whose fields say what exists: type, default, allowed range, a sentence, the symbol.

This file turns text and TOML values into them, and every wrong key or value into an error that names the key, the
nearest known one and what is allowed. What files hold is read by its type in the same way (`typed`).
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from cosda.errors import CosdaError, nearest
from cosda.files import as_text

T = TypeVar("T")
SHOWN = 80  # characters of a value in a message


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    symbol: str = "",
    check: Callable[[Any], Any] | None = None,
) -> Any:
    """A field with a sentence, a closed range and the paper's symbol.

    ``check`` is for values that a type and a range cannot describe: it takes any value and returns it as it is stored,
    or raises a `CosdaError` that says what is allowed.
    """
    metadata = {"help": help, "low": low, "high": high, "symbol": symbol, "check": check}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a program or a person may want to know about one field."""

    key: str
    kind: Any
    default: Any
    help: str
    symbol: str
    low: float | None
    high: float | None
    check: Callable[[Any], Any] | None = None

    @property
    def allowed(self) -> str:
        """The allowed values in words."""
        origin, arguments = get_origin(self.kind), get_args(self.kind)
        if origin is Literal:
            return "one of " + ", ".join(map(str, arguments))
        if origin in (Union, UnionType):
            inner = dataclasses.replace(self, kind=next(a for a in arguments if a is not type(None)))
            return f"{inner.allowed}, or 'none'"
        words = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
        if origin is tuple:
            text = "a list" if Ellipsis in arguments else "two numbers [start, end]"
        else:
            text = words.get(self.kind, "a group of values by name")
        if self.low is not None and self.high is not None:
            return f"{text} from {self.low:g} to {self.high:g}"
        if self.low is not None:
            return f"{text}, at least {self.low:g}"
        return text


def settings_of(cls: type) -> dict[str, Setting]:
    """All settings of a dataclass by key."""
    hints = get_type_hints(cls)
    found = {}
    for item in dataclasses.fields(cls):
        if "help" in item.metadata:
            default = None if item.default is MISSING else item.default
            found[item.name] = Setting(item.name, hints[item.name], default, **item.metadata)
    return found


def check(one: Setting, value: Any, where: str) -> Any:
    """Return ``value`` with the setting's type, or raise an error that says what is allowed."""
    try:
        return _convert(one, one.kind, value) if one.check is None else one.check(value)
    except CosdaError as error:
        raise CosdaError(f"{where}: {error}") from None
    except (OverflowError, TypeError, ValueError):
        raise CosdaError(f"{where}: {one.key} = {shown(value)} is not possible; it must be {one.allowed}.") from None


def shown(value: Any) -> str:
    """Any value for a message, cut short."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # a number of more digits than Python writes
        text = f"<{type(value).__name__}>"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _convert(one: Setting, kind: Any, value: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if value is None or value == "none":
            return None
        return _convert(one, next(a for a in arguments if a is not type(None)), value)
    if origin is Literal:
        word = value if value in arguments else str(value)  # a word such as 16 looks like a number
        if word not in arguments:
            raise ValueError
        return word
    if origin is tuple:
        values = value if isinstance(value, list | tuple) else [value] * len(arguments)
        if len(values) != len(arguments):
            raise ValueError
        return tuple(_convert(one, part, v) for part, v in zip(arguments, values, strict=True))
    if kind is bool or kind is str:
        if not isinstance(value, kind):
            raise TypeError
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    if not math.isfinite(value):
        raise ValueError
    if kind is int and int(value) != value:
        raise ValueError
    number = kind(value)
    if not ((one.low is None or number >= one.low) and (one.high is None or number <= one.high)):
        raise ValueError
    return number


def build(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """Make the dataclass from plain values, checked one by one."""
    known = settings_of(cls)
    for key in values:
        if key not in known:
            raise CosdaError(f"{where}: there is no setting '{key}'.{nearest(key, known)} Known: {', '.join(known)}.")
    return cls(**{key: check(known[key], value, where) for key, value in values.items()})


def parse_value(text: str) -> Any:
    """Read the right-hand side of ``--set key=value`` as TOML; a bare word is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (RecursionError, ValueError):  # too many brackets or digits; what is no TOML is a ValueError too
        return text


# --- Values of files --------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Range:
    """What a number in a file may be: ``Annotated[int, Range(0)]``."""

    low: float | None = None
    high: float | None = None


def typed(kind: Any, value: Any, where: str, key: str = "") -> Any:
    """A value out of a file as its type says that it is, in all its parts.

    Dataclasses and lists (as tuples) are made anew, and a name that a dataclass does not have is an error. A
    ``TypedDict`` may have other names than its own, which stay as they are. Ranges are those of `setting` and `Range`.
    Texts are such as can be shown (`as_text`).

    Args:
        kind: a type; one that is not known here is taken as it is.
        value: plain values, as JSON has them.
        where: the file, for errors.
        key: the value's place in the file, for errors.

    Raises:
        CosdaError: it is something else; the message names the place, what is there, and what is allowed.

    Example:
        >>> typed(tuple[int, ...], [1, 2], "a.json")
        (1, 2)
    """
    low = high = None
    if get_origin(kind) is Annotated:
        kind, *ranges = get_args(kind)
        low = next((each.low for each in ranges if each.low is not None), None)
        high = next((each.high for each in ranges if each.high is not None), None)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if value is None:
            return None
        inner = next(a for a in arguments if a is not type(None))
        return typed(Annotated[inner, Range(low, high)], value, where, key)
    one = Setting(key or "the value", kind, None, "", "", low, high)
    if dataclasses.is_dataclass(kind) or is_typeddict(kind):
        return _fields(kind, _mapping(one, value, where), where, key)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        values = _mapping(one, value, where)
        return {name: typed(arguments[1], each, where, _below(key, name)) for name, each in values.items()}
    if origin is tuple and Ellipsis in arguments:
        if not isinstance(value, list | tuple):
            raise CosdaError(f"{where}: {one.key} = {shown(value)} is not possible; it must be a list.")
        return tuple(typed(arguments[0], each, where, f"{key}[{place}]") for place, each in enumerate(value))
    if kind not in (bool, int, float, str) and origin not in (Literal, tuple):
        return value
    found = check(one, value, where)
    return as_text(found) if kind is str else found


def _mapping(one: Setting, value: Any, where: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return value
    raise CosdaError(f"{where}: {one.key} = {shown(value)} is not possible; it must be a group of values by name.")


def _fields(kind: Any, values: Mapping[str, Any], where: str, key: str) -> Any:
    hints = get_type_hints(kind, include_extras=True)
    if is_typeddict(kind):
        needed = kind.__required_keys__
    else:
        items = dataclasses.fields(kind)
        hints = {item.name: _with_range(hints[item.name], item.metadata) for item in items}
        needed = {item.name for item in items if item.default is MISSING and item.default_factory is MISSING}
        for name in values:
            if name not in hints:
                raise CosdaError(
                    f"{where}: there is no '{_below(key, name)}'.{nearest(name, hints)} Known: {', '.join(hints)}."
                )
    if missing := [_below(key, name) for name in hints if name in needed and name not in values]:
        raise CosdaError(f"{where}: there is no {', '.join(missing)}.")
    found = {name: typed(hints[name], each, where, _below(key, name)) for name, each in values.items() if name in hints}
    return {**values, **found} if is_typeddict(kind) else kind(**found)


def _with_range(kind: Any, metadata: Mapping[str, Any]) -> Any:
    low, high = metadata.get("low"), metadata.get("high")
    return kind if low is None and high is None else Annotated[kind, Range(low, high)]


def _below(key: str, name: str) -> str:
    return f"{key}.{name[:SHOWN]}" if key else name[:SHOWN]

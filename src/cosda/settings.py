"""Settings are dataclasses whose fields say what exists: type, default, allowed range, a sentence, the symbol.

This file turns text and TOML values into them, and every wrong key or value into an error that names the key, the
nearest known one and what is allowed.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from cosda.errors import CosdaError, nearest

T = TypeVar("T")


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
        text = "two numbers [start, end]" if origin is tuple else words.get(self.kind, str(self.kind))
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
        raise CosdaError(f"{where}: {one.key} = {value!r} is not possible; it must be {one.allowed}.") from None


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
    except tomllib.TOMLDecodeError:
        return text

"""The lineage of a model as a chain of steps; a model folder keeps it in its `model.json`, oldest first. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from cosda.records.verdict import Estimate, Word
from cosda.settings import Range, typed

Three = tuple[float, float, float]  # an accuracy and its interval


class _Short(TypedDict):
    """What a lineage keeps of a verdict."""

    verdict: Word


class _Verdict(_Short, total=False):
    reasons: tuple[str, ...]
    before: Three | None
    after: Three | None


# An entry of a lineage, as far as it is looked at; "from" is a word that Python keeps for itself.
_Entry = TypedDict(
    "_Entry",
    {
        "step": str,
        "date": str | None,
        "domain": str | None,
        "images": Annotated[int, Range(0)] | None,
        "method": str | None,
        "network": str | None,
        "carry": str | None,
        "from": str | None,
        "began": str | None,
        "verdict": _Verdict | None,
        "settings": Mapping[str, Any] | None,
        "share": float | None,
    },
    total=False,
)
Lineage = tuple[_Entry, ...]


@dataclass(frozen=True)
class Step:
    """One step on the way to a model, and where the model lies that it made."""

    step: str  # source, adapt, profile, drop, …
    date: str | None = None
    domain: str | None = None
    images: int | None = None
    method: str | None = None  # or what the model was made of, where it came from elsewhere
    carry: str | None = None
    began: str | None = None  # the folder of the model that it began with
    verdict: str | None = None
    reasons: tuple[str, ...] = ()  # of the verdict, in words
    before: Estimate | None = None  # the accuracy on the domain, of the model that it began with
    after: Estimate | None = None
    folder: Path | None = None  # of the model that it made; None where nobody wrote that down
    found: Literal["there", "gone", "replaced"] | None = None  # replaced: another model lies in the folder now
    bytes: int | None = None  # of the folder, where the model is there

    def __repr__(self) -> str:
        known = {one.name: getattr(self, one.name) for one in fields(self)}
        return f"Step({', '.join(f'{name}={value!r}' for name, value in known.items() if value not in (None, ()))})"

    @property
    def made_by(self) -> str:
        """Method and carry rule."""
        carried = f" (carry {self.carry})" if self.carry and self.carry != "last" else ""
        return f"{self.method}{carried}" if self.method else ""

    @property
    def change(self) -> str:
        """The estimated accuracy before and after, in percent."""
        return f"{self.before.accuracy:.0%} → {self.after.accuracy:.0%}" if self.before and self.after else ""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"folder": None if self.folder is None else str(self.folder)}


def read_lineage(entries: Sequence[Mapping[str, Any]], where: str) -> tuple[Step, ...]:
    """The steps of a lineage; where their models lie is not looked at.

    Raises:
        CosdaError: it is not as cosda writes it; the message begins with ``where``.
    """
    return tuple(_step(entry) for entry in typed(Lineage, entries, where, "lineage"))


def _step(entry: Mapping[str, Any]) -> Step:
    verdict = entry.get("verdict") or {}
    # An entry without a name says in one line what the model was made of: {"wrapped": "ResNet"}.
    kind, made_of = next(iter(entry.items()), ("–", None))
    if "step" in entry:
        kind, made_of = entry["step"], entry.get("method", entry.get("network"))
    images = entry.get("images")
    return Step(
        step=str(kind),
        date=_text(entry.get("date")),
        domain=_text(entry.get("domain")),
        images=None if images is None else int(images),
        method=_text(made_of),
        carry=_text(entry.get("carry")),
        began=_text(entry.get("from")),
        verdict=verdict.get("verdict"),
        reasons=tuple(map(str, verdict.get("reasons", ()))),
        before=_estimate(verdict.get("before")),
        after=_estimate(verdict.get("after")),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _estimate(values: Sequence[float] | None) -> Estimate | None:
    if values is None:
        return None
    accuracy, low, high = values
    return Estimate(accuracy, low, high)

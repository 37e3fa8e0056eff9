"""From defaults, presets and the command line to the resolved settings of a run. No torch until a method is named.

Order: defaults < variant < benchmark preset < its method section < ablation < command line. Each value remembers where
it came from. The resolved plan is written into the run folder and is all that the runner reads.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from cosda.config.schema import SECTIONS
from cosda.data.domain import Headline, Protocol_
from cosda.errors import CosdaError, nearest
from cosda.files import Json, digest
from cosda.methods import METHODS, Method
from cosda.records.selection import VALIDATORS, check_rule
from cosda.settings import build, check, parse_value, settings_of


@dataclass(frozen=True)
class Plan:
    """Everything that decides the numbers of a run."""

    benchmark: str
    fingerprint: str  # names the images and labels of all domains in the chain
    source_fingerprint: str  # and those of the source alone
    protocol: Protocol_
    headline: Headline
    domains: tuple[str, ...]
    classes: tuple[str, ...]
    input_width: int | None  # of feature vectors; None for images
    method: str
    variant: str | None
    ablation: str | None
    seed: int
    select: str  # one of cosda.records.selection.RULES
    model: str | None  # digest of a given source model; None where it is trained from `source`
    settings: Mapping[str, Mapping[str, Any]]  # section -> key -> value
    stages: Mapping[str, Mapping[str, Mapping[str, Any]]]  # target -> section -> key -> value
    origins: Mapping[str, str]

    @property
    def label(self) -> str:
        """How tables call the run."""
        first = next(iter(METHODS.find(self.method).variants), None)
        variant = self.variant if self.variant != first else None
        extra = [word for word in (variant, self.ablation, self._carry) if word]
        return f"{self.method} ({', '.join(extra)})" if extra else self.method

    @property
    def _carry(self) -> str:
        settings = self.settings["adapt"]
        share = f" {settings['carry_share']:g}" if settings["carry"] in ("interpolate", "along") else ""
        return "" if settings["carry"] == "last" else f"carry {settings['carry']}{share}"

    def as_json(self) -> Json:
        """What config.json holds."""
        return {"kind": "adapt", "label": self.label} | dataclasses.asdict(self)

    @property
    def name(self) -> str:
        """The name of the run folder; where a value came from does not matter for it."""
        facts = self.as_json()
        del facts["origins"]
        words = [self.benchmark, self.method, self.ablation, f"s{self.seed}", digest(facts)]
        return "-".join(word for word in words if word)

    def section(self, name: str, target: str | None = None) -> Any:
        """The settings of a section as its dataclass, with what is special to a target."""
        special = self.stages.get(target or "", {}).get(name, {})
        return build(SECTIONS[name], {**self.settings[name], **special}, name)

    def make_method(self, target: str | None = None) -> Method:
        """A new method object with the settings of this run and target."""
        return build(METHODS.find(self.method), self.method_settings(target), self.method)

    def method_settings(self, target: str | None = None) -> dict[str, Any]:
        """The method's settings, with what is special to a target."""
        special = self.stages.get(target or "", {}).get("method", {})
        return {**self.settings["method"], **special}


def resolve(
    *,
    benchmark: str,
    fingerprint: str,
    source_fingerprint: str = "",
    protocol: Protocol_,
    headline: Headline,
    domains: tuple[str, ...],
    classes: tuple[str, ...],
    input_width: int | None = None,
    method: str,
    variant: str | None = None,
    ablation: str | None = None,
    seed: int = 0,
    select: str = "last",
    model: str | None = None,
    given: Mapping[str, Mapping[str, Any]] | None = None,
    changes: Iterable[str] = (),
) -> Plan:
    """Resolve the settings of a run.

    ``changes`` are texts ``key=value`` from the command line; ``given`` is what a given model has settled already.
    """
    cls = METHODS.find(method)
    known = {name: settings_of(part) for name, part in {**SECTIONS, "method": cls}.items()}
    values = {name: {key: one.default for key, one in part.items()} for name, part in known.items()}
    origins = {f"{name}.{key}": "default" for name, part in values.items() for key in part}
    stages: dict[str, dict[str, dict[str, Any]]] = {}

    def put(section: str, key: str, value: Any, origin: str, target: str | None = None) -> None:
        if key not in known[section]:
            raise CosdaError(
                f"{origin}: {section} has no setting '{key}'.{nearest(key, known[section])} "
                f"Known: {', '.join(known[section])}."
            )
        checked = check(known[section][key], value, origin)
        if target is None:
            values[section][key] = checked
            origins[f"{section}.{key}"] = origin
            for name, sections in stages.items():  # a later layer also outranks what an earlier one set for one target
                if key in sections.get(section, {}):
                    del sections[section][key], origins[f"stage.{name}.{section}.{key}"]
        else:
            stages.setdefault(target, {}).setdefault(section, {})[key] = checked
            origins[f"stage.{target}.{section}.{key}"] = origin

    variants = cls.variants
    variant = variant or next(iter(variants), None)
    if variant is not None and variant not in variants:
        raise CosdaError(
            f"{method} has no variant '{variant}'.{nearest(variant, variants)} Known: {', '.join(variants) or 'none'}."
        )
    for key, value in variants.get(variant or "", {}).items():
        put("method", key, value, f"variant {variant}")

    for section, own in cls.preset.items():
        for key, value in own.items():
            put(section, key, value, f"method {method}")
    preset = load_preset(benchmark)
    layers = [(f"preset {benchmark}", preset)]
    if variant is not None and variant in preset:
        layers.append((f"preset {benchmark}, {variant}", preset[variant]))
    for origin, table in layers:
        for section in SECTIONS:
            for key, value in table.get(section, {}).items():
                put(section, key, value, origin)
        own = table.get("method", {}).get(method, {})
        for key, value in own.items():
            if key in SECTIONS:
                for inner, part in value.items():
                    put(key, inner, part, f"{origin}, {method}")
            else:
                put("method", key, value, f"{origin}, {method}")
        for target, sections in table.get("stage", {}).items():
            if target in domains:
                for key, value in sections.get("adapt", {}).items():
                    put("adapt", key, value, f"{origin}, {target}", target)
                for key, value in sections.get("method", {}).get(method, {}).items():
                    put("method", key, value, f"{origin}, {target}", target)

    if input_width is not None:
        put("network", "encoder", "identity", "the data are feature vectors")
        put("data", "size", None, "the data are feature vectors")
    if ablation is not None:
        for key, value in ablations(method, ablation).items():
            put("method", key, value, f"ablation {ablation}")
    parsed = [_parse_change(change, known, domains) for change in changes]
    for change in sorted(parsed, key=lambda change: change[4] is not None):  # what is special to a target comes last
        put(*change)
    for section, settled in (given or {}).items():
        for key, value in settled.items():
            put(section, key, value, "given model")
    if cls.fixed_epochs is not None:
        put("adapt", "epochs", cls.fixed_epochs, f"method {method}")
    if input_width is not None and model is None:
        encoder, size = values["network"]["encoder"], values["data"]["size"]
        if encoder != "identity" or size is not None:
            asked = f"the encoder '{encoder}'" if encoder != "identity" else f"a size of {size} pixels"
            raise CosdaError(f"the data are feature vectors, and {asked} is for images. Leave it out.")

    plan = Plan(
        benchmark=benchmark,
        fingerprint=fingerprint,
        source_fingerprint=source_fingerprint,
        protocol=protocol,
        headline=headline,
        domains=domains,
        classes=classes,
        input_width=input_width,
        method=method,
        variant=variant,
        ablation=ablation,
        seed=seed,
        select=check_rule(select),
        model=model,
        settings=values,
        stages=stages,
        origins=origins,
    )
    for target in domains[1:]:
        settings = plan.section("adapt", target)
        if select in VALIDATORS and not settings.validate:
            raise CosdaError(f"the selection rule '{select}' needs images to judge by: let adapt.validate be above 0.")
        if settings.carry == "auto" and not settings.validate:
            raise CosdaError("--carry auto needs images to judge by: let adapt.validate be above 0.")
        if settings.carry == "along" and select != "last":
            raise CosdaError(
                f"--carry along takes the mean over all epochs, so there is none to choose by '{select}'. "
                "Leave --select out, or take --carry interpolate."
            )
        plan.make_method(target)
    plan.section("source")
    return plan


def _parse_change(
    text: str, known: Mapping[str, Mapping[str, Any]], domains: tuple[str, ...]
) -> tuple[str, str, Any, str, str | None]:
    """Read ``[stage.TARGET.][section.]key=value``; a bare key is looked up in the method, then in adapt."""
    name, equals, value = text.partition("=")
    origin = f"--set {text}"
    if not equals:
        raise CosdaError(f"{origin}: write key=value, for example --set temperature=0.1.")
    words, target = name.strip().split("."), None
    if words[0] == "stage" and len(words) > 2:
        target, words = words[1], words[2:]
        if target not in domains[1:]:
            raise CosdaError(
                f"{origin}: '{target}' is no target of this run.{nearest(target, domains[1:])} "
                f"Targets: {', '.join(domains[1:])}."
            )
    if len(words) == 1:
        section = next((s for s in ("method", "adapt") if words[0] in known[s]), "")
        words = [section, *words]
    if len(words) != 2 or words[0] not in known or words[1] not in known[words[0]]:
        everything = [f"{s}.{k}" for s, part in known.items() for k in part] + list(known["method"])
        raise CosdaError(
            f"{origin}: there is no setting '{name}'.{nearest(name, everything)} "
            "'cosda methods NAME' lists what a method has."
        )
    if target is not None and words[0] not in ("adapt", "method"):
        raise CosdaError(f"{origin}: only settings of 'adapt' and of the method can differ between targets.")
    return words[0], words[1], parse_value(value.strip()), origin, target


@cache
def load_preset(benchmark: str) -> dict[str, Any]:
    """The preset of a benchmark; empty for a folder of the user's."""
    file = resources.files("cosda") / "presets" / f"{benchmark}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def ablations(method: str, name: str | None = None) -> dict[str, Any]:
    """All ablations of a method by name, or the values of one."""
    known: dict[str, Any] = load_preset("ablations").get(method, {})
    if name is None:
        return known
    if name not in known:
        raise CosdaError(
            f"{method} has no ablation '{name}'.{nearest(name, known)} Known: {', '.join(known) or 'none'}."
        )
    return dict(known[name])


def carry_changes(rule: str | None) -> list[str]:
    """The settings that --carry stands for: a rule, or a rule with the share of the incoming model."""
    if rule is None:
        return []
    name, equals, share = (part.strip() for part in rule.partition("="))
    if equals and name in ("last", "auto"):
        raise CosdaError(f"--carry {rule}: '{name}' takes no share. Write --carry interpolate={share}.")
    try:
        return [f"adapt.carry={name}", *([f"adapt.carry_share={float(share)}"] if equals else [])]
    except ValueError:
        raise CosdaError(
            f"--carry {rule}: '{share}' is no number. Write for example --carry interpolate=0.5."
        ) from None

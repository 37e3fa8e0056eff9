"""From what was asked for to the resolved settings of a run.

Order: defaults < variant < method < benchmark's preset < data < given model < ablation < request. Each value remembers
where it came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cosda.carry import rule_text
from cosda.carry.bank import Bank
from cosda.config.plan import Plan
from cosda.config.presets import ablations, load_preset
from cosda.config.request import Change, Data, Request
from cosda.config.schema import SECTIONS
from cosda.errors import CosdaError, nearest
from cosda.methods import METHODS, Method
from cosda.models.artifact import Model
from cosda.models.experts import DomainBank
from cosda.models.opaque import is_graph
from cosda.records.selection import check_rule
from cosda.settings import Setting, check, settings_of
from cosda.validators import VALIDATORS

Values = Mapping[str, Mapping[str, Any]]  # section -> key -> value
OF_IMAGES = {("network", "encoder"), ("network", "weights"), ("data", "size")}  # no settings of feature vectors


class Layer(NamedTuple):
    """Values that come from one place; with a target, for that target alone."""

    origin: str
    values: Values
    target: str | None = None


def resolve(data: Data, request: Request) -> Plan:
    """Resolve all settings of a run.

    Raises:
        CosdaError: an unknown or impossible setting, or settings that contradict each other or the data.
    """
    method = METHODS.find(request.method)
    variant = _variant(method, request)
    table = _Table(method)
    for layer in _layers(data, request, method, variant):
        table.put(layer)
    plan = Plan(
        data=data,
        method=request.method,
        variant=variant,
        ablation=request.ablation,
        seed=request.seed,
        select=check_rule(request.select),
        model=request.model.key if request.model else None,
        settings=table.values,
        stages=table.stages,
        origins=table.origins,
    )
    _check(plan, request)
    return plan


def _variant(method: type[Method], request: Request) -> str | None:
    """The variant that was asked for, or the first one."""
    variants = method.variants
    variant = request.variant or next(iter(variants), None)
    if variant is not None and variant not in variants:
        raise CosdaError(
            f"{request.method} has no variant '{variant}'.{nearest(variant, variants)} "
            f"Known: {', '.join(variants) or 'none'}."
        )
    return variant


def _layers(data: Data, request: Request, method: type[Method], variant: str | None) -> Iterator[Layer]:
    """All that has a say, the last word last."""
    name = request.method
    yield Layer(f"variant {variant}", {"method": method.variants.get(variant or "", {})})
    yield Layer(f"method {name}", method.preset)
    preset = load_preset(data.benchmark)
    yield from _preset(f"preset {data.benchmark}", preset, data, name)
    if variant in preset:
        yield from _preset(f"preset {data.benchmark}, {variant}", preset[variant], data, name)
    if data.input_width is not None:
        yield Layer("the data are feature vectors", {"network": {"encoder": "identity"}, "data": {"size": None}})
    if request.model is not None:
        yield Layer("given model", settled(request.model))
        yield Layer("given model", _goes_on(request.model))
    if request.ablation is not None:
        yield Layer(f"ablation {request.ablation}", {"method": ablations(name).find(request.ablation)})
    yield from _requested(data, request, method)
    if method.fixed_epochs is not None:
        yield Layer(f"method {name}", {"adapt": {"epochs": method.fixed_epochs}})


def _preset(origin: str, preset: Mapping[str, Any], data: Data, method: str) -> Iterator[Layer]:
    """What a preset says in general, of a method, and of single targets."""
    yield Layer(origin, {section: preset.get(section, {}) for section in SECTIONS})
    own = preset.get("method", {}).get(method, {})
    yield Layer(f"{origin}, {method}", {"method": {key: value for key, value in own.items() if key not in SECTIONS}})
    yield Layer(f"{origin}, {method}", {section: own.get(section, {}) for section in SECTIONS})
    for target, sections in preset.get("stage", {}).items():
        if target in data.domains:
            special = {"adapt": sections.get("adapt", {}), "method": sections.get("method", {}).get(method, {})}
            yield Layer(f"{origin}, {target}", special, target)


def settled(model: Model) -> Values:
    """What a given model has settled: its network and its preprocessing."""
    network: dict[str, Any] = {"encoder": model.architecture.encoder, "bottleneck": model.architecture.bottleneck}
    if isinstance(model.network, DomainBank) and model.network.late:
        network["freeze_encoder"] = True  # all experts share it
    seen = model.preprocessing
    data = {"size": seen.size, "profile": seen.profile, "flip": seen.flip} if seen.of_images else {}
    return {"network": network, "data": data}


def _goes_on(model: Model) -> Values:
    """How a given model goes on unless somebody says otherwise: a domain bank with experts like its last one."""
    if not isinstance(model.network, DomainBank):
        return {}
    bits = [expert.bits for expert in model.network.experts]
    return {"adapt": {"carry": rule_text(Bank(*bits[-1:]))}}


def _requested(data: Data, request: Request, method: type[Method]) -> Iterator[Layer]:
    """The changes that were asked for; those of single targets come last."""
    found = [_read(change, method, data) for change in request.changes]
    fixed = settled(request.model) if request.model else {}
    for layer in found:
        [(section, values)] = layer.values.items()
        [(key, value)] = values.items()
        if key in fixed.get(section, {}) and fixed[section][key] != value:
            raise CosdaError(
                f"{layer.origin}: the given model was made with {section}.{key} = {fixed[section][key]}, which only "
                "a new source training could change. Leave it out."
            )
        if data.input_width is not None and request.model is None and (section, key) in OF_IMAGES:
            raise CosdaError(f"{layer.origin}: this is for images, and the data are feature vectors. Leave it out.")
    yield from sorted(found, key=lambda layer: layer.target is not None)


def _read(change: Change, method: type[Method], data: Data) -> Layer:
    """Read ``[stage.TARGET.][section.]key``; a bare key is looked up in the method, then in adapt."""
    known = _known(method)
    words, target = change.key.split("."), None
    if words[0] == "stage" and len(words) > 2:
        target, words = words[1], words[2:]
        if target not in data.domains[1:]:
            raise CosdaError(
                f"{change.origin}: '{target}' is no target of this run.{nearest(target, data.domains[1:])} "
                f"Targets: {', '.join(data.domains[1:])}."
            )
    if len(words) == 1:
        words = [next((section for section in ("method", "adapt") if words[0] in known[section]), ""), *words]
    if len(words) != 2 or words[0] not in known or words[1] not in known[words[0]]:
        everything = [f"{section}.{key}" for section, part in known.items() for key in part] + list(known["method"])
        raise CosdaError(
            f"{change.origin}: there is no setting '{change.key}'.{nearest(change.key, everything)} "
            "'cosda methods NAME' lists what a method has."
        )
    if target is not None and words[0] not in ("adapt", "method"):
        raise CosdaError(f"{change.origin}: only settings of 'adapt' and of the method can differ between targets.")
    return Layer(change.origin, {words[0]: {words[1]: change.value}}, target)


def _known(method: type[Method]) -> dict[str, dict[str, Setting]]:
    return {name: settings_of(part) for name, part in {**SECTIONS, "method": method}.items()}


class _Table:
    """The values so far, by section and key; for all targets, and for single ones."""

    def __init__(self, method: type[Method]) -> None:
        self.known = _known(method)
        self.values = {name: {key: one.default for key, one in part.items()} for name, part in self.known.items()}
        self.stages: dict[str, dict[str, dict[str, Any]]] = {}
        self.origins = {f"{name}.{key}": "default" for name, part in self.values.items() for key in part}

    def put(self, layer: Layer) -> None:
        """Lay a layer over those before."""
        for section, values in layer.values.items():
            for key, value in values.items():
                self._put(section, key, value, layer)

    def _put(self, section: str, key: str, value: Any, layer: Layer) -> None:
        known = self.known[section]
        if key not in known:
            raise CosdaError(
                f"{layer.origin}: {section} has no setting '{key}'.{nearest(key, known)} Known: {', '.join(known)}."
            )
        checked = check(known[key], value, layer.origin)
        if layer.target is not None:
            self.stages.setdefault(layer.target, {}).setdefault(section, {})[key] = checked
            self.origins[f"stage.{layer.target}.{section}.{key}"] = layer.origin
            return
        self.values[section][key] = checked
        self.origins[f"{section}.{key}"] = layer.origin
        for target, sections in self.stages.items():  # a later layer outranks what an earlier one said of one target
            if key in sections.get(section, {}):
                del sections[section][key], self.origins[f"stage.{target}.{section}.{key}"]


def _check(plan: Plan, request: Request) -> None:
    """What settings mean together; building each section checks it for itself."""
    model = request.model
    if model is not None and model.classes != plan.data.classes:
        raise CosdaError(
            f"the model knows the classes {', '.join(model.classes)}; {plan.data.benchmark} has "
            f"{', '.join(plan.data.classes)}. Both lists must be the same, in the same order."
        )
    if model is not None and is_graph(model.architecture) and any(plan.adapt(target).epochs for target in plan.targets):
        raise CosdaError(
            f"the model is a graph (graph.{model.architecture.encoder}), which cannot be trained: it predicts, and is "
            "evaluated, profiled and monitored. To adapt it, import the network that it was exported from: "
            "cosda import WEIGHTS --build MODULE:FUNCTION, or timm/NAME, torchvision/NAME, hf/NAME."
        )
    bank = model is not None and isinstance(model.network, DomainBank)
    for target in plan.targets:
        settings = plan.adapt(target)
        rule = settings.carry_rule
        if bank and not rule.enlarges:
            raise CosdaError(
                f"'{target}' has the carry rule '{settings.carry}', but the model is a domain bank by then, to which a "
                "stage can only add an expert. Use --carry bank."
            )
        bank = bank or rule.enlarges
        if plan.select in VALIDATORS and not settings.validate:
            raise CosdaError(f"the selection rule '{plan.select}' judges by images: let adapt.validate be above 0.")
        if rule.needs_images and not settings.validate:
            raise CosdaError(f"the carry rule '{settings.carry}' judges by images: let adapt.validate be above 0.")
        if not rule.chooses_epoch and plan.select != "last":
            raise CosdaError(
                f"the carry rule '{settings.carry}' takes the mean over all epochs, so there is none to choose by "
                f"'{plan.select}'. Leave --select out, or take --carry interpolate."
            )
        plan.make_method(target)
    edges, mixed = plan.edges, [plan.source_training, *map(plan.adapt, plan.targets)]
    if edges.operator == "dexined" and edges.weights is None and any(part.edgemix < 1 for part in mixed):
        raise CosdaError(f"edges.operator = dexined needs edges.weights. {HOW_TO_GET}")


HOW_TO_GET = (
    "Download DexiNed's trained weights yourself (DexiNed_BIPED_10.pth, https://github.com/xavysp/DexiNed) and give "
    "the file with --set edges.weights=FILE, or use --set edges.operator=sobel, which needs none."
)

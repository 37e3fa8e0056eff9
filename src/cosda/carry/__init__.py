"""Carry rules: what a stage hands on need not be the adapted model.

A method adapts as it always does; the rule then makes what is handed on, which is what is saved, measured and used for
the next domain. One rule, one file, and one line here. Torch is not imported with this folder: help texts need names
alone.
"""

from __future__ import annotations

from dataclasses import fields

from cosda.carry.along import Along
from cosda.carry.auto import Auto
from cosda.carry.bank import Bank
from cosda.carry.base import CarryRule, State, Target
from cosda.carry.interpolate import Interpolate
from cosda.carry.last import Last
from cosda.errors import CosdaError
from cosda.registry import Registry
from cosda.settings import build, parse_value, settings_of

__all__ = ["CARRY_RULES", "CarryRule", "State", "Target", "parse_rule", "rule_text"]

CARRY_RULES: Registry[type[CarryRule]] = Registry(
    "carry rule",
    {
        "last": Last,
        "interpolate": Interpolate,
        "along": Along,
        "auto": Auto,
        "bank": Bank,
    },
    group="cosda.carry_rules",
    of=CarryRule,
)


def parse_rule(text: str) -> CarryRule:
    """Read ``rule`` or ``rule=value``.

    Raises:
        CosdaError: there is no such rule, or its value is not possible; the message says what to write.

    Example:
        >>> parse_rule("interpolate=0.5")
        Interpolate(share=0.5)
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals and isinstance(parse_value(name), int | float):
        raise CosdaError(f"carry = {text} is no rule: did you mean interpolate={name}?")
    rule = CARRY_RULES.find(name)
    keys = list(settings_of(rule))
    if not equals:
        return rule()
    if not keys:
        raise CosdaError(f"carry = {text}: '{name}' takes no value. Write {name}, or interpolate={value}.")
    return build(rule, {keys[0]: parse_value(value)}, f"carry = {text}")


def rule_text(rule: CarryRule) -> str:
    """The text of which `parse_rule` makes the rule, with its value."""
    name = next(name for name, known in CARRY_RULES.items() if known is type(rule))
    return name if not fields(rule) else f"{name}={rule.value!r}"

"""What a section's numbers are, in words: its accuracy, protocol and selection rule."""

from __future__ import annotations

from cosda.report.model.groups import Section
from cosda.validators import VALIDATORS

HOW_TO_READ = (
    "Accuracies are in percent; drops, transfers and forgetting in percentage points. "
    "A ± B is the mean and the sample standard deviation over the seeds; a single seed has no ±. "
    "Bold is the best mean of its column; † marks a difference from it that may be chance."
)


def headline(section: Section) -> str:
    """What 'accuracy' stands for in this section."""
    if section.headline == "per-class":
        return "mean of the accuracies of the classes"
    return "share of images classified correctly (top-1)"


def selection(rule: str) -> str:
    """What a selection rule means for the numbers."""
    if rule == "last":
        return "each stage keeps the model of its last epoch; no labels are used."
    if rule == "oracle":
        return (
            "each stage keeps the epoch that is best on the target's test labels: "
            "an upper bound that nobody can reach in practice, not comparable with other rules."
        )
    meaning = f" ({VALIDATORS[rule].title})" if rule in VALIDATORS else ""
    return f"each stage keeps the epoch with the best label-free score '{rule}'{meaning}; no labels are used."


def protocol(name: str) -> str:
    """What a protocol means for the numbers."""
    return {
        "inductive": "adapted on the target's training images, measured on its test images.",
        "transductive": "adapted and measured on the same images of the target.",
    }.get(name, "")


def facts(section: Section) -> list[str]:
    """What the numbers of a section are, one fact a line."""
    about = protocol(section.protocol)
    return [
        f"Accuracy: {headline(section)}.",
        f"Protocol: {section.protocol}: {about}" if about else f"Protocol: {section.protocol}",
        f"Selection rule: {section.select}: {selection(section.select)}",
    ]

"""What a section's numbers are, in words: its accuracy, protocol and selection rule."""

from __future__ import annotations

from cosda.metrics import MEASURES
from cosda.records.verdict import DECIDED, Checked, JudgedImage, Verdict
from cosda.report.model.adaptations import Adaptation
from cosda.report.model.groups import Section
from cosda.report.model.numbers import show_p
from cosda.validators import VALIDATORS

HOW_TO_READ = (
    "Accuracies are in percent; drops, transfers and forgetting in percentage points. "
    "A ± B is the mean and the sample standard deviation over the seeds; a single seed has no ±. "
    "Bold is the best mean of its column; † marks a difference from it that may be chance."
)

OF_ADAPTATIONS = {
    "Estimated accuracy": "What share of the new images the model is likely to classify correctly. Nobody measured it: "
    "it follows from how the model answers, and from how it answered images that it was calibrated on. In nine of "
    "ten cases the true accuracy lies in the interval.",
    "Risk": "How likely the adaptation cost more than two points, on the new domain or on what was known.",
    "Class changed": "The share of the new images to which the adapted model gives another class.",
    "Agreement": "The share of images to which both give the same class. Images of earlier domains are gone; images "
    "that are made from their profiles stand in for them. Little agreement there means that something is forgotten.",
    "Confidence": "The mean probability of the class that the model gives. It rises with nearly every adaptation, also "
    "with a harmful one.",
    "Check": "Accuracy on labelled images that somebody gave, with its interval (Clopper and Pearson, 95 %), and the "
    "exact paired test: how likely such a difference is by chance.",
}
NO_ESTIMATE = "the model has no calibrated profile"
OF_IMAGES = ("image", "why", "before", "after")
OF_NUMBERS = "Accuracies, confidence and agreement are in percent, changes in percentage points."


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


def decided(verdict: Verdict) -> str:
    """What a verdict rests on."""
    return DECIDED[verdict.decided_by]


def paired(check: Checked) -> str:
    """What became of the images of a check."""
    return f"{check.better} better, {check.worse} worse, {show_p(check.p_value)}"


def judgement(adaptation: Adaptation) -> list[str]:
    """What is known of an adaptation, one fact a line: why the verdict is so, and where the model comes from."""
    verdict, facts = adaptation.verdict, [*adaptation.problems]
    if verdict is not None:
        facts += [*verdict.reasons, f"{decided(verdict).capitalize()}.", next_step(verdict)]
    return [*facts, f"Lineage: {lineage(adaptation)}.", f"Run: {adaptation.run.path.name}."]


def image(judged: JudgedImage) -> tuple[str, str, str, str]:
    """A row under `OF_IMAGES`."""
    why = {"changed": "its class changed", "unsure": "least confident"}[judged.why]
    before = f"{judged.before} ({judged.before_probability:.0%})"
    return judged.image, why, before, f"{judged.after} ({judged.after_probability:.0%})"


def lineage(adaptation: Adaptation) -> str:
    """The chain of steps that led to the model, in one line."""
    texts = []
    for step in adaptation.lineage:
        facts = ", ".join(filter(None, (step.how, step.date, step.verdict)))
        texts.append(f"{step.name} ({facts})" if facts else step.name)
    return " → ".join(texts)


def meanings(adaptations: bool, chains: bool) -> dict[str, str]:
    """What the numbers of a report mean, by their names."""
    measures = {measure.title: measure.meaning for measure in MEASURES.values()}
    return (OF_ADAPTATIONS if adaptations else {}) | (measures if chains or not adaptations else {})


def again(verdict: Verdict) -> str:
    """What another try may change after a rejection."""
    if verdict.before is None:  # nothing was trained
        return "another try: other images"
    return "another try: a lower rate (--set adapt.lr=…), more images, or --check a few labelled ones"


def next_step(verdict: Verdict) -> str:
    """What to do now."""
    return {
        "accepted": "Next: use the adapted model. To go back, use the older folder, which is as it was.",
        "doubtful": "Next: look at the images below, or check with a few labelled ones (--check FOLDER). Until then "
        "the older folder is the safe choice.",
        "rejected": f"Next: go on with the older folder, which is as it was. {again(verdict).capitalize()}.",
    }[verdict.verdict]

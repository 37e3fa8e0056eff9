"""What changes between two models as a file: CSV for programs, one page with small pictures for people."""

from __future__ import annotations

from pathlib import Path

from cosda.errors import CosdaError
from cosda.files import check_file, csv_text, write_atomically
from cosda.report.diff.changes import Diff
from cosda.report.formats.layout import TextTable
from cosda.report.formats.shown import Shown, data_address
from cosda.report.formats.templates import environment
from cosda.report.model.numbers import percent

PAIRS = 20  # of classes that a page lists
CAPTION = "Each with its class and probability by A, then by B; first those of which both models are most confident."
HEADER = ("image", "before", "before_probability", "after", "after_probability", "skipped")


def check_output(path: str | Path) -> str:
    """``csv`` or ``html``, by the name of a file that can be written.

    Raises:
        CosdaError: it is neither, or it cannot be written.
    """
    kind = Path(path).suffix.lower().lstrip(".")
    if kind not in ("csv", "html"):
        raise CosdaError(f"changes are written to FILE.csv or FILE.html, and {path} is neither.")
    check_file(path)
    return kind


def write_diff(diff: Diff, path: str | Path, most: int = 200) -> None:
    """Write what changes between two models, so that a reader sees the old file or the whole new one.

    Args:
        diff: what `cosda.diff` found.
        path: ``FILE.csv`` or ``FILE.html``; its folder is made.
        most: images that a page shows, the most confident changes first. A CSV file has all.

    Raises:
        CosdaError: another kind of file, or it cannot be written.

    Example:
        >>> write_diff(cosda.diff("model", "adapted", "photos", pictures=200), "changes.html")
    """
    text = as_csv(diff) if check_output(path) == "csv" else as_page(diff, most)
    write_atomically(path, text)


def as_csv(diff: Diff) -> str:
    """A line for each image whose class changes, and for each that cannot be read, with the reason."""
    changed = [
        (one.image, one.before, f"{one.before_probability:.6f}", one.after, f"{one.after_probability:.6f}", "")
        for one in diff.changed
    ]
    skipped = [(name, "", "", "", "", reason) for name, reason in diff.skipped.items()]
    return csv_text([HEADER, *changed, *skipped])


def as_page(diff: Diff, most: int) -> str:
    """One HTML page that needs neither a network nor scripts; equal changes give equal bytes."""
    pairs, changed = list(diff.pairs.items()), diff.changed
    rows = tuple((a, b, f"{images:,}", percent(images / diff.images)) for (a, b), images in pairs[:PAIRS])
    addresses = {name: data_address(content) for name, content in diff.pictures.items()}
    left_out = f" {most:,} of {len(changed):,} are shown; --output FILE.csv has all." if most < len(changed) else ""
    return (
        environment()
        .get_template("diff.html.jinja")
        .render(
            diff=diff,
            percent=percent(diff.share),
            pairs=TextTable(("A says", "B says", "images", "of all, %"), rows, names=2),
            more_pairs=len(pairs) - len(rows),
            shown=[Shown(one, addresses.get(one.image)) for one in changed[:most]],
            caption=CAPTION + left_out,
        )
    )

"""The reference of the documentation site, made from the program: Python names, commands, settings, numbers of presets.

`pages` gives Markdown by its path in the site. Nothing here is written down twice: what a table says is in the code.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from typing import Any, NamedTuple

import typer.main

import cosda
from cosda.__main__ import app
from cosda.config.presets import ablations
from cosda.config.schema import SECTIONS
from cosda.data.registry import BENCHMARKS, Known
from cosda.files import flatten
from cosda.markdown import code, plain, table
from cosda.methods import METHODS
from cosda.settings import settings_of

# All public names, by what they are for; a name that is missing here, or is here and not public, is an error.
NAMES: dict[str, tuple[str, tuple[str, ...]]] = {
    "adapting": (
        "Adapt a model",
        (
            *("load", "wrap", "import_model", "adapt", "Options", "Machine", "Watcher", "Result", "Verdict", "Said"),
            *("Estimate", "Check", "Checked", "Counted", "CosdaError"),
        ),
    ),
    "using": (
        "Use, watch and deploy a model",
        (
            *("predict", "Predictor", "Prediction", "Route", "evaluate", "Evaluation", "profile", "DomainProfile"),
            *("Calibration", "monitor", "Drift", "history", "Step", "diff", "Diff", "ComparedImage", "write_diff"),
            *("export", "Exported"),
        ),
    ),
    "data": (
        "Data",
        ("load_domain", "Domain", "Items", "Files", "Images", "Indexable", "load_benchmark", "Benchmark"),
    ),
    "models": ("Models", ("Model", "Network", "Output", "Architecture", "Preprocessing")),
    "comparing": (
        "Compare methods",
        ("train_source", "run_chain", "find_runs", "Run", "RoutedImages", "write_report"),
    ),
    "methods": (
        "Write a method",
        ("METHODS", "Method", "setting", "Batch", "Group", "Progress", "TargetImages"),
    ),
}


def pages() -> dict[str, str]:
    """The pages of the reference: path in the site -> Markdown."""
    check_names()
    found = {"reference/python.md": python_names(), "reference/commands.md": commands()}
    found |= {f"reference/python/{name}.md": python_page(*NAMES[name]) for name in NAMES}
    found |= {"reference/settings.md": all_settings()}
    found |= {f"reference/presets/{known.name}.md": preset_page(known) for known in BENCHMARKS.values()}
    return found


def lines(*parts: str | Iterable[str]) -> str:
    """Paragraphs and tables, with an empty line between two."""
    return "\n\n".join(part if isinstance(part, str) else "\n".join(part) for part in parts) + "\n"


# --- Python -----------------------------------------------------------------------------------------------------------


def check_names() -> None:
    """Raise an error unless `NAMES` holds every public name once, and each of them has a docstring."""
    held = [name for _, names in NAMES.values() for name in names]
    wrong = {name for name in held if held.count(name) > 1} | set(held).symmetric_difference(cosda.__all__)
    if wrong:
        raise ValueError(f"tools/reference.py: NAMES must hold each name of cosda.__all__ once: {sorted(wrong)}.")
    silent = [name for name in held if not inspect.getdoc(getattr(cosda, name))]
    if silent:
        raise ValueError(f"public names without a docstring: {silent}.")


def python_names() -> str:
    """A list of all public names, with a sentence and a link for each."""
    parts: list[str | Iterator[str]] = [
        "# Python",
        "Everything that a program needs is in `import cosda`. Names are loaded when they are first used, so the "
        "import is quick and does not load torch. Whatever else a module holds is not public and may change.",
    ]
    for page, (title, names) in NAMES.items():
        rows = [(f"[`{name}`](python/{page}.md#cosda.{name})", _sentence(getattr(cosda, name))) for name in names]
        parts += [f"## {title}", table(("name", "what it is"), rows, 2)]
    return lines(*parts)


def _sentence(thing: object) -> str:
    """The first sentence of a docstring; its code stays code."""
    first = (inspect.getdoc(thing) or "").split("\n\n")[0].replace("``", "`")
    return " ".join(first.split()).replace("|", "\\|")


def python_page(title: str, names: Iterable[str]) -> str:
    """The docstrings of some names; mkdocstrings puts them in place of the lines that begin with colons."""
    return lines(f"# {title}", *(f"::: cosda.{name}" for name in names))


# --- The command line -------------------------------------------------------------------------------------------------


def commands() -> str:
    """Every command with all its arguments and options, as its help has them."""
    program: Any = typer.main.get_command(app)
    top = program.make_context("cosda", [], resilient_parsing=True)
    parts: list[str | Iterator[str]] = ["# Command line", *_described(program.help), *_options(program, top)]
    rows = []
    for name, command in program.commands.items():
        context = command.make_context(name, [], parent=top, resilient_parsing=True)
        rows.append((f"[`cosda {name}`](#cosda-{name})", _with_code(command.help.split("\n")[0])))
        parts += [f"## cosda {name}", *_described(command.help)]
        parts += [f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```", *_options(command, context)]
    parts.insert(2, table(("command", "what it does"), rows, 2))
    return lines(*parts)


def _described(text: str) -> Iterator[str]:
    """The paragraphs of a help text; commands in them are set as code."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        first, _, rest = paragraph.partition(":")
        if first in ("Example", "Examples", "Start with"):
            yield f"{first}:"
            yield "```sh\n" + "\n".join(line.strip() for line in rest.strip().splitlines()) + "\n```"
        else:
            yield _with_code(paragraph)


def _with_code(text: str) -> str:
    """A help text as Markdown; the options and commands that it names are set as code."""
    parts = re.split(r"((?<!\S)--[a-z][a-z-]*|'cosda [^']*')", text)
    return "".join(code(part.strip("'")) if i % 2 else _plain(part) for i, part in enumerate(parts))


def _plain(text: str) -> str:
    """Text as it is, with the spaces at its ends, which `plain` takes off."""
    return f"{' ' * text[:1].isspace()}{plain(text)}{' ' * text[1:][-1:].isspace()}"


def _options(command: Any, context: Any) -> Iterator[str]:
    """A table of the arguments and one of the options."""
    kinds: dict[str, list[tuple[str, str, str]]] = {"argument": [], "option": []}
    for parameter in command.get_params(context):
        if record := parameter.get_help_record(context):
            kinds[parameter.param_type_name].append(_option(*record))
    for kind, rows in kinds.items():
        if rows:
            yield "\n".join(table((kind, "what it is", "value"), rows, 3))


def _option(name: str, text: str) -> tuple[str, str, str]:
    """Name, sentence, and what must be known of its value."""
    sentence, _, facts = text.partition("  [")
    shown = [code(fact) if ":" not in fact and fact != "required" else plain(fact) for fact in facts[:-1].split("; ")]
    return code(name), _with_code(sentence), ", ".join(shown) if facts else ""


# --- Settings ---------------------------------------------------------------------------------------------------------


def all_settings() -> str:
    """All settings with their symbols, defaults and ranges: those of every run, then those of each method."""
    parts: list[str | Iterable[str]] = [
        "# Settings",
        "Any setting is changed with `--set section.key=value`, in Python with `settings={'section.key': value}`. "
        "Those of the method need no section, and those of `adapt` none where the method has no setting of that name. "
        "`--set stage.TARGET.key=value` changes it for one target. `cosda methods NAME --benchmark BENCHMARK` prints "
        "every value and where it comes from. A later one of these wins: default, variant, method, preset of the "
        "benchmark, data, given model, ablation, what you ask for.",
        "The presets, with the origin of each number: "
        + ", ".join(f"[{plain(known.title)}](presets/{known.name}.md)" for known in BENCHMARKS.values())
        + ".",
        "## Of every run",
    ]
    for section, cls in SECTIONS.items():
        parts += [f"### {section}", inspect.getdoc(cls) or "", _settings(cls, f"{section}.")]
    parts.append("## Of the methods")
    for name, method in METHODS.items():
        parts += [f"### {name}", f"{plain(method.title)} ([the method](../methods/{name}.md)).", *_method(name, method)]
    return lines(*parts)


def _settings(cls: type, prefix: str) -> Iterator[str]:
    rows = [
        (code(prefix + key), _with_code(one.help), code(as_written(one.default)), plain(one.allowed), one.symbol)
        for key, one in settings_of(cls).items()
    ]
    return table(("setting", "what it is", "default", "allowed", "symbol"), rows, 5)


def _method(name: str, method: Any) -> Iterator[str | Iterator[str]]:
    """The settings of a method, and what its variants and ablations change."""
    yield _settings(method, "") if settings_of(method) else "It has no settings of its own."
    if method.fixed_epochs is not None:
        yield f"It has {method.fixed_epochs} epochs, whatever is asked for."
    changed = [
        *((f"in all variants, `{key}`", value) for key, value in method.preset.items() if value),
        *((f"variant `{key}`", value) for key, value in method.variants.items()),
        *((f"ablation `{key}`", value) for key, value in ablations(name).items()),
    ]
    if changed:
        yield "\n".join(f"* {what}: {_changes(values)}" for what, values in changed)


def _changes(values: Mapping[str, Any]) -> str:
    return ", ".join(code(f"{key} = {as_written(value)}") for key, value in flatten(values).items()) or "the defaults"


def as_written(value: Any) -> str:
    """A value as it would be written after ``--set key=``."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_written, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- Presets ----------------------------------------------------------------------------------------------------------


class Number(NamedTuple):
    """A value of a preset: the table that it stands in, and the comment beside it, above it or beside the table."""

    place: tuple[str, ...]
    key: str
    value: Any
    comment: str


def preset_page(known: Known) -> str:
    """Every number in the preset of a benchmark, with what the preset says of its origin."""
    text = (resources.files("cosda") / "presets" / f"{known.name}.toml").read_text(encoding="utf-8")
    head, _, body = text.partition("\n\n")
    said = " ".join(line.removeprefix("#").strip() for line in head.splitlines())
    parts: list[str | Iterable[str]] = [
        f"# Numbers of {plain(known.title)}",
        said,
        "All that is not named here is the [default](../settings.md). An empty cell at the right is what the paragraph "
        f"above says; `cosda methods METHOD --benchmark {known.name}` prints what holds in a run.",
    ]
    by_title: dict[str, list[tuple[str, str, str, str]]] = {}
    for number in numbers_of(body):
        title, who, key = whose(number)
        by_title.setdefault(title, []).append(
            (who, code(key), code(as_written(number.value)), number.comment.replace("|", "\\|"))
        )
    for title, rows in by_title.items():
        parts += [f"## {title}", table(("for", "setting", "value", "where it comes from"), rows, 4)]
    return lines(*parts)


def numbers_of(text: str) -> list[Number]:
    """The values of a preset in their order.

    Raises:
        ValueError: a line that cannot be read alone, so that the list would not be all that the preset holds.
    """
    place: tuple[str, ...] = ()
    of_table = above = ""
    found = []
    for line in text.splitlines():
        content, comment = _split(line)
        if content.startswith("["):
            place, of_table, above = tuple(_path(tomllib.loads(content))), comment or above, ""
        elif content:
            [(key, value)] = tomllib.loads(content).items()
            found.append(Number(place, key, value, comment or above or of_table))
            above = ""
        else:
            above = f"{above} {comment}".strip()
    held = {".".join([*number.place, number.key]): number.value for number in found}
    if held != flatten(tomllib.loads(text)):
        raise ValueError("a preset holds a value that is not on a line of its own.")
    return found


def _split(line: str) -> tuple[str, str]:
    """What a line of TOML says, and its comment."""
    for place in [*(i for i, letter in enumerate(line) if letter == "#"), len(line)]:
        try:
            tomllib.loads(line[:place])
        except tomllib.TOMLDecodeError:  # within a text
            continue
        return line[:place].strip(), line[place + 1 :].strip()
    raise ValueError(f"a line of a preset cannot be read alone: {line}")


def _path(nested: Mapping[str, Any]) -> Iterator[str]:
    for key, inner in nested.items():
        yield key
        yield from _path(inner)


def whose(number: Number) -> tuple[str, str, str]:
    """The chapter of a number, the methods and targets that it is for, and the setting."""
    place, who = list(number.place), []
    variant = place.pop(0) if place[0] not in (*SECTIONS, "method", "stage") else None
    if place[0] == "stage":
        who.append(f"target {place[1]}")
        place = place[2:]
    if place[0] == "method":
        who.insert(0, f"`{place[1]}`")
        place = place[2:]
    title = "In all variants" if variant is None else f"Variant {variant}"
    return title, ", ".join(who) or "all methods", ".".join([*place, number.key])

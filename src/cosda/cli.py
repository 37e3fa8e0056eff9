"""The command line: parsing and printing; no logic. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosda.errors import CosdaError

if TYPE_CHECKING:
    from cosda.run.prepare import Machine

app = typer.Typer(
    name="cosda",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Continual source-free domain adaptation: adapt a trained classifier to one new domain after another, "
    "without the old pictures, without labels, without a domain ID, and without forgetting.\n\n"
    "Start with [bold]cosda demo[/bold].",
)

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="'digits', a folder of domain folders, or an .npz with several domains.")
]
Pictures = Annotated[
    Path, typer.Argument(metavar="PICTURES", help="A folder of pictures, an image list, or an .npz file.")
]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")]
Method = Annotated[str, typer.Option(help="The method; 'cosda methods' lists them.")]
Variant = Annotated[str | None, typer.Option(help="Variant of the method, such as 'paper' or 'authors'.")]
Ablate = Annotated[str | None, typer.Option("--ablate", help="Leave a part of the method out, such as 'no-mi'.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")]
Epochs = Annotated[int | None, typer.Option(min=0, help="Epochs for each target (adapt.epochs).")]
Batch = Annotated[int | None, typer.Option(min=1, help="Pictures in a batch (adapt.batch_size).")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change any setting, such as temperature=0.1 or source.lr=0.01."),
]
Encoder = Annotated[str | None, typer.Option(help="Encoder: resnet18|34|50|101, small, lite0, timm/NAME, hf/NAME, …")]
Weights = Annotated[str | None, typer.Option(help="File with the encoder's weights, or 'pretrained'.")]
Size = Annotated[int | None, typer.Option(min=8, help="Pixels of each side of the network's input (data.size).")]
Freeze = Annotated[bool, typer.Option("--freeze-encoder", help="Compute features once and train the head alone.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of run folders.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads.")]
Cache = Annotated[Path | None, typer.Option(help="Folder of packed pictures; default $COSDA_CACHE or ~/.cache/cosda.")]
NoPack = Annotated[bool, typer.Option("--no-pack", help="Read the original pictures each time.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at a picture that cannot be read.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def main() -> None:
    """Run the command line: code 2 for a wrong request, 130 for Ctrl-C, never a traceback for either."""
    try:
        app()
    except CosdaError as error:
        print(f"cosda: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("cosda: interrupted; the same command goes on where the last epoch ended.", file=sys.stderr)
        sys.exit(130)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for runs and report.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 3,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """See it work: source model, yardsticks, CoSDA and its ablation on the embedded benchmark, and the report.

    Example:  cosda demo --seeds 1
    """
    from cosda import terminal
    from cosda.report import write_report
    from cosda.run.demo import run_demo

    machine = _machine("cpu", threads, None, False, False)
    runs = run_demo(out, seeds, machine, _watcher(quiet))
    terminal.print_tables(runs)
    write_report(runs, out / "report.html", "html")
    print(f"report written to {out / 'report.html'}")


@app.command()
def source(
    data: Data,
    domain: Annotated[str, typer.Option("--domain", help="The labelled domain to train on.")],
    model: Annotated[Path, typer.Option("--model", "-m", help="Where to write the model folder.")],
    encoder: Encoder = None,
    weights: Weights = None,
    size: Size = None,
    freeze_encoder: Freeze = False,
    epochs: Annotated[int | None, typer.Option(min=0, help="Epochs (source.epochs).")] = None,
    set_: Sets = None,
    seed: Seed = 0,
    out: Out = Path("runs"),
    device: Device = "auto",
    threads: Threads = None,
    cache: Cache = None,
    no_pack: NoPack = False,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Train a source model on one labelled domain.

    Example:  cosda source digits --domain print --model print-model
    """
    from cosda.run import api

    changes = _changes(set_, {"source.epochs": epochs}, encoder, weights, size, freeze_encoder)
    machine = _machine(device, threads, cache, no_pack, strict)
    trained = api.train_source(
        data, domain, changes=changes, seed=seed, out=out, machine=machine, watcher=_watcher(quiet)
    )
    trained.save(model)
    print(f"model written to {model}")


@app.command()
def run(
    data: Data,
    method: Method = "cosda",
    domains: Annotated[str | None, typer.Option(help="The chain, source first: a,b,c. Default: all in order.")] = None,
    model: Annotated[Path | None, typer.Option(help="Start from this model instead of training the source.")] = None,
    variant: Variant = None,
    ablate: Ablate = None,
    encoder: Encoder = None,
    weights: Weights = None,
    size: Size = None,
    freeze_encoder: Freeze = False,
    epochs: Epochs = None,
    batch_size: Batch = None,
    set_: Sets = None,
    seed: Seed = 0,
    out: Out = Path("runs"),
    device: Device = "auto",
    threads: Threads = None,
    cache: Cache = None,
    no_pack: NoPack = False,
    strict: Strict = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Adapt along a chain of domains and measure all of them after each; goes on if it was interrupted.

    Example:  cosda run digits --domains print,outline,colour,hand --method cosda
    """
    from cosda import terminal
    from cosda.run import api

    changes = _changes(
        set_, {"adapt.epochs": epochs, "adapt.batch_size": batch_size}, encoder, weights, size, freeze_encoder
    )
    finished = api.run_chain(
        data,
        method,
        domains=[name.strip() for name in domains.split(",")] if domains else None,
        model=model,
        changes=changes,
        variant=variant,
        ablation=ablate,
        seed=seed,
        out=out,
        machine=_machine(device, threads, cache, no_pack, strict),
        watcher=_watcher(quiet),
    )
    if as_json:
        _print_json({"run": str(finished.path), "label": finished.label, **finished.summary()})
    else:
        terminal.print_run(finished)


@app.command()
def adapt(
    model: ModelFolder,
    pictures: Pictures,
    to: Annotated[Path, typer.Option("--to", help="Where to write the adapted model.")],
    method: Method = "cosda",
    variant: Variant = None,
    ablate: Ablate = None,
    freeze_encoder: Freeze = False,
    epochs: Epochs = None,
    batch_size: Batch = None,
    set_: Sets = None,
    seed: Seed = 0,
    out: Out = Path("runs"),
    device: Device = "auto",
    threads: Threads = None,
    cache: Cache = None,
    no_pack: NoPack = False,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Adapt a model to one new domain of unlabelled pictures; the old model stays as it is.

    Example:  cosda adapt print-model photos/new-site --to adapted-model
    """
    from cosda.run import api

    changes = _changes(set_, {"adapt.epochs": epochs, "adapt.batch_size": batch_size}, None, None, None, freeze_encoder)
    result = api.adapt(
        model,
        pictures,
        method,
        changes=changes,
        variant=variant,
        ablation=ablate,
        seed=seed,
        out=out,
        machine=_machine(device, threads, cache, no_pack, strict),
        watcher=_watcher(quiet),
    )
    result.model.save(to)
    print(f"adapted model written to {to}; run folder: {result.run.path}")


@app.command()
def evaluate(
    model: ModelFolder,
    pictures: Pictures,
    device: Device = "auto",
    threads: Threads = None,
    cache: Cache = None,
    no_pack: NoPack = False,
    strict: Strict = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Measure a model on a labelled domain: one folder per class, named as the model's classes.

    Example:  cosda evaluate adapted-model office31/webcam
    """
    from cosda import terminal
    from cosda.run import api

    machine = _machine(device, threads, cache, no_pack, strict)
    result = api.evaluate(model, pictures, machine=machine, watcher=_watcher(quiet))
    if as_json:
        _print_json(result.as_json())
    else:
        terminal.print_evaluation(result)


@app.command()
def predict(
    model: ModelFolder,
    pictures: Pictures,
    format: Annotated[str, typer.Option("--format", "-f", help="csv or json.")] = "csv",
    output: Annotated[Path | None, typer.Option("--output", help="File to write; default: standard output.")] = None,
    device: Device = "auto",
    threads: Threads = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """The class of every picture and its probability; no labels and no domain ID needed.

    Example:  cosda predict adapted-model photos/today --output classes.csv
    """
    from cosda.run import api

    machine = _machine(device, threads, None, True, strict)
    predictions = api.predict(model, pictures, machine=machine, watcher=_watcher(quiet))
    text = api.write_predictions(predictions, format)
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUNS...", help="Run folders, or folders that hold them.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write; default report.FORMAT.")] = None,
    format: Annotated[str | None, typer.Option("--format", "-f", help="html, md or csv; default by -o.")] = None,
) -> None:
    """Tables and pictures from run folders, as one self-contained page, Markdown or CSV.

    Example:  cosda report runs -o report.html
    """
    from cosda.records import find_runs
    from cosda.report import write_report

    chosen = format or (output.suffix.lstrip(".") if output else "html") or "html"
    path = output or Path(f"report.{chosen}")
    write_report(find_runs(runs), path, chosen)
    print(f"report written to {path}")


@app.command()
def doctor(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A folder of domain folders, lists, or an .npz file.")],
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Say what was found in a folder of domains and what is wrong with it; exit code 2 if anything is.

    Example:  cosda doctor photos
    """
    from cosda.data.doctor import examine

    findings = examine(data)
    if as_json:
        _print_json(findings.as_json())
    else:
        print(findings.as_text())
    raise typer.Exit(0 if findings.ok else 2)


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="A method, to see its settings.")] = None,
    benchmark: Annotated[str, typer.Option(help="Show the settings for this benchmark, such as office31.")] = "own",
    variant: Variant = None,
    ablate: Ablate = None,
    as_json: AsJson = False,
) -> None:
    """List the methods, or the settings of one with where each value comes from.

    Example:  cosda methods cosda --benchmark office31 --variant authors
    """
    from cosda import terminal
    from cosda.run import catalogue

    rows = catalogue.settings_rows(name, benchmark, variant, ablate) if name else catalogue.all_methods()
    if as_json:
        _print_json(rows)
    else:
        terminal.print_rows(rows)


def _machine(device: str, threads: int | None, cache: Path | None, no_pack: bool, strict: bool) -> Machine:
    from cosda.run.prepare import Machine

    return Machine(device, threads, cache, not no_pack, strict)


def _watcher(quiet: bool) -> Any:
    from cosda.terminal import open_watcher

    return open_watcher(quiet)


def _changes(
    sets: list[str] | None,
    named: dict[str, int | None],
    encoder: str | None,
    weights: str | None,
    size: int | None,
    freeze: bool,
) -> list[str]:
    """The options that are settings, as the texts of --set; --set itself comes last and wins."""
    options: dict[str, Any] = {
        **named,
        "network.encoder": encoder,
        "network.weights": weights,
        "data.size": size,
        "network.freeze_encoder": True if freeze else None,
    }
    given = [f"{key}={json.dumps(value)}" for key, value in options.items() if value is not None]
    return given + (sets or [])


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()

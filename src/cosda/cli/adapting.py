"""Commands that train: source, run, adapt. Parsing and printing; no logic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosda.cli.app import app, open_machine, print_json, setting_changes, watcher
from cosda.cli.options import (
    Ablate,
    AsJson,
    Batch,
    Cache,
    Carry,
    Compile,
    Data,
    Device,
    DomainName,
    EdgeMix,
    Encoder,
    Epochs,
    Freeze,
    Images,
    Log,
    Method,
    ModelFolder,
    NoPack,
    Out,
    Precision,
    Quiet,
    Seed,
    Select,
    Sets,
    Size,
    Strict,
    Threads,
    Variant,
    Weights,
)


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
    precision: Precision = None,
    compile: Compile = False,
    cache: Cache = None,
    no_pack: NoPack = False,
    strict: Strict = False,
    log: Log = "",
    quiet: Quiet = False,
) -> None:
    """Train a source model on one labelled domain.

    Example:  cosda source digits --domain print --model print-model
    """
    from cosda import api

    named = {"source.epochs": epochs, "network.precision": precision}
    changes = setting_changes(set_, named, encoder, weights, size, freeze_encoder)
    machine = open_machine(device, threads, cache, no_pack, strict, log, compile)
    trained = api.train_source(
        data, domain, changes=changes, seed=seed, out=out, machine=machine, watcher=watcher(quiet)
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
    edgemix: EdgeMix = None,
    set_: Sets = None,
    seed: Seed = 0,
    select: Select = "last",
    carry: Carry = None,
    out: Out = Path("runs"),
    device: Device = "auto",
    threads: Threads = None,
    precision: Precision = None,
    compile: Compile = False,
    cache: Cache = None,
    no_pack: NoPack = False,
    strict: Strict = False,
    log: Log = "",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Adapt along a chain of domains; measure all after each.

    Goes on where it was interrupted; a finished run is only shown.

    Example:  cosda run digits --domains print,outline,colour,hand --method cosda
    """
    from cosda import api
    from cosda.cli import progress as terminal
    from cosda.config.resolve import carry_changes

    named: dict[str, object] = {"adapt.epochs": epochs, "adapt.batch_size": batch_size}
    named |= {"adapt.edgemix": edgemix, "network.precision": precision}
    changes = carry_changes(carry) + setting_changes(set_, named, encoder, weights, size, freeze_encoder)
    finished = api.run_chain(
        data,
        method,
        domains=[name.strip() for name in domains.split(",")] if domains else None,
        model=model,
        changes=changes,
        variant=variant,
        ablation=ablate,
        seed=seed,
        select=select,
        out=out,
        machine=open_machine(device, threads, cache, no_pack, strict, log, compile),
        watcher=watcher(quiet),
    )
    if as_json:
        print_json({"run": str(finished.path), "label": finished.label, **finished.summary()})
    else:
        terminal.print_run(finished)


@app.command()
def adapt(
    model: ModelFolder,
    images: Images,
    to: Annotated[Path, typer.Option("--to", help="Where to write the adapted model.")],
    method: Method = "cosda",
    domain: DomainName = None,
    variant: Variant = None,
    ablate: Ablate = None,
    freeze_encoder: Freeze = False,
    epochs: Epochs = None,
    batch_size: Batch = None,
    edgemix: EdgeMix = None,
    set_: Sets = None,
    seed: Seed = 0,
    select: Select = "last",
    carry: Carry = None,
    out: Out = Path("runs"),
    device: Device = "auto",
    threads: Threads = None,
    precision: Precision = None,
    compile: Compile = False,
    cache: Cache = None,
    no_pack: NoPack = False,
    strict: Strict = False,
    log: Log = "",
    quiet: Quiet = False,
) -> None:
    """Adapt a model to new, unlabelled images.

    The old model stays as it is. Labels are not read, even where there are any. Recommended, where earlier domains
    matter too: --method aad --carry interpolate=0.5 (docs/carry.md).

    Example:  cosda adapt print-model photos/new-site --to adapted-model
    """
    from cosda import api
    from cosda.config.resolve import carry_changes

    named: dict[str, object] = {"adapt.epochs": epochs, "adapt.batch_size": batch_size}
    named |= {"adapt.edgemix": edgemix, "network.precision": precision}
    changes = carry_changes(carry) + setting_changes(set_, named, None, None, None, freeze_encoder)
    result = api.adapt(
        model,
        images,
        method,
        domain=domain,
        changes=changes,
        variant=variant,
        ablation=ablate,
        seed=seed,
        select=select,
        out=out,
        machine=open_machine(device, threads, cache, no_pack, strict, log, compile),
        watcher=watcher(quiet),
    )
    result.model.save(to)
    print(f"adapted model written to {to}; run folder: {result.run.path}")

"""Before a run: make the samples of all domains readable, as packed images or as features of a frozen encoder."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from filelock import FileLock
from torch import nn

from cosda.config.resolve import Plan
from cosda.data.cache import Packed, content_key, default_cache, pack, unpacked
from cosda.data.domain import Domain, Undecoded, everything
from cosda.data.loader import Loader
from cosda.distributed import collectives, env
from cosda.errors import CosdaError
from cosda.files import digest
from cosda.models.artifact import Model
from cosda.models.bn_folding import evaluating
from cosda.models.network import place
from cosda.models.precision import check_compiler
from cosda.preprocessing import Preprocessing
from cosda.records.writers import check_writers
from cosda.run.memory import keep_freed_memory
from cosda.watch import Watcher

MARGIN = 8 / 7  # images are stored at 256 pixels for a network that sees 224
EVALUATION_BATCH = 128


@dataclass(frozen=True)
class Machine:
    """Where a run computes and keeps its cache; none of this is meant to change numbers."""

    device: str = "auto"
    threads: int | None = None
    cache: Path | None = None
    pack: bool = True
    strict: bool = False
    keep_memory: bool = True  # of the whole process; see run/memory.py
    patience: float = 0  # seconds to wait for a run folder that another process still holds
    log: tuple[str, ...] = ()  # who follows the records besides: names of records/writers.py
    compile: bool = False  # the passes of encoders that are trained, by torch.compile

    def __post_init__(self) -> None:
        check_writers(self.log)
        if self.compile:
            check_compiler()

    @property
    def _device(self) -> str:
        """The device by name; under torchrun each process takes the GPU that has its number."""
        name = self.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        return f"cuda:{env.place().local}" if name == "cuda" and env.place().world > 1 else name

    def join(self) -> None:
        """Meet the other processes of this run, if torchrun started any."""
        if env.place().world == 1:
            return
        if self.device.startswith("cuda:"):
            raise CosdaError("under torchrun each process takes the GPU of its own number: write --device cuda.")
        on_gpus = self._device.startswith("cuda")
        if on_gpus:
            torch.cuda.set_device(self._take())
        collectives.join("nccl" if on_gpus else "gloo")

    def open(self) -> torch.device:
        """Set the number of threads and how memory is kept, and return the device."""
        if self.keep_memory:
            keep_freed_memory()
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        self.join()
        return self._take()

    def _take(self) -> torch.device:
        name = self._device
        try:
            return torch.empty(0, device=name).device
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise CosdaError(f"device '{name}' cannot be used: {reason}. Try --device cpu.") from None


def prepare(
    domain: Domain, plan: Plan, model: Model, device: torch.device, machine: Machine, watcher: Watcher
) -> Packed:
    """What a run reads: images, or features where the plan freezes the encoder."""
    packed = readable(domain, model.preprocessing.size, machine, watcher)
    if not plan.settings["network"]["freeze_encoder"] or packed.domain.kind == "features":
        return packed
    encoder = place(model.network.encoder, device)
    # The key of the files, which is remembered, and not of their pixels, which would be read for it each time.
    key = content_key(domain, machine.cache)
    featured = featurise(packed.domain, key, encoder, model.preprocessing, device, machine, watcher)
    return Packed(featured, packed.skipped)


def readable(domain: Domain, size: int, machine: Machine, watcher: Watcher) -> Packed:
    """The domain with samples that can be read: packed once, or decoded each time with ``pack=False``."""
    if not isinstance(domain.items, Undecoded):
        return Packed(domain, [])
    stored = round(size * MARGIN)
    progress = _Progress(watcher, domain.name)
    if machine.pack:
        prepared = pack(domain, stored, machine.cache, strict=machine.strict, progress=progress)
    else:
        prepared = unpacked(domain, stored, strict=machine.strict, progress=progress)
    progress.end()
    for name, reason in prepared.skipped:
        watcher.note(f"skipped {domain.name}/{name}: {reason}")
    return prepared


class _Progress:
    """Passes the progress of `pack`, which counts twice (reading, then decoding), on to a watcher."""

    def __init__(self, watcher: Watcher, name: str) -> None:
        self.watcher, self.name, self.done = watcher, name, 0

    def __call__(self, done: int, total: int) -> None:
        if done < self.done:
            self.end()
        if self.done == 0:
            self.watcher.begin(f"packing {self.name}", total, "images")
        self.watcher.advance(done - self.done)
        self.done = done

    def end(self) -> None:
        if self.done:
            self.watcher.end()
        self.done = 0


def fingerprint(domains: list[Domain], cache: Path | None = None) -> str:
    """Names images, labels and splits of a chain, so that other data never continue an old run."""
    return digest([[d.name, content_key(d, cache), _list(d.labels), _list(d.train), _list(d.test)] for d in domains])


def _list(values: np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None) -> list[int] | None:
    return None if values is None else values.tolist()


def featurise(
    domain: Domain,
    content: str,
    encoder: nn.Module,
    preprocessing: Preprocessing,
    device: torch.device,
    machine: Machine,
    watcher: Watcher,
) -> Domain:
    """The domain with each image replaced by the encoder's features of its test view, computed once and cached.

    ``content`` names the images.
    """
    assert not isinstance(domain.items, Undecoded)
    path = features_path(content, encoder, preprocessing, machine.cache)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.exists():
            # Of several processes one does this while the others wait for the lock.
            loader = Loader(domain.items, everything(len(domain)), preprocessing, device, EVALUATION_BATCH, alone=True)
            watcher.begin(f"features of {domain.name}", len(domain), "images")
            parts = []
            with evaluating(encoder) as fast:
                for batch in loader.sweep("test"):
                    parts.append(fast(batch.images).float().cpu().numpy())
                    watcher.advance(len(batch), images=len(batch))
            temporary = path.with_suffix(f".{os.getpid()}.tmp")
            with temporary.open("wb") as file:
                np.save(file, np.concatenate(parts))
            os.replace(temporary, path)
            watcher.end()
    return replace(domain, items=np.load(path, mmap_mode="r"))


def features_path(content: str, encoder: nn.Module, preprocessing: Preprocessing, cache: Path | None) -> Path:
    """Where the features of images lie, or will."""
    return (
        (cache or default_cache()) / "features" / f"{digest([content, weights_key(encoder), repr(preprocessing)])}.npy"
    )


def weights_key(module: nn.Module) -> str:
    """Names the bits of a network."""
    state = {key: value.detach().cpu().clone().contiguous() for key, value in module.state_dict().items()}
    return hashlib.blake2b(safetensors.torch.save(state), digest_size=16).hexdigest()

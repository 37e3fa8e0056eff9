"""Where a run computes and keeps its cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from cosda.distributed import collectives, env
from cosda.errors import CosdaError
from cosda.models.encoders.weights import first_line
from cosda.models.precision import check_compiler
from cosda.records.writers import check_writers
from cosda.settings import shown

MOST_THREADS = 1024


@dataclass(frozen=True)
class Machine:
    """Where a run computes and keeps its cache; none of this is meant to change numbers."""

    device: str = "auto"  # auto, cpu, cuda, cuda:1, …
    threads: int | None = None  # of torch on the CPU; None leaves the number as it is
    cache: Path | str | None = None  # of decoded images and features; None is $COSDA_CACHE or ~/.cache/cosda
    pack: bool = True  # decode images once into the cache, or read the originals each time
    strict: bool = False  # stop at an image that cannot be read, instead of leaving it out
    follow_links: bool = False  # read what links and lists name outside of the data folder
    patience: float = 0  # seconds to wait for a run folder that another process still holds
    log: tuple[str, ...] = ()  # who follows the records besides: names of records/writers
    compile: bool = False  # the passes of encoders that are trained, by torch.compile

    def __post_init__(self) -> None:
        if self.cache is not None:
            object.__setattr__(self, "cache", Path(self.cache))
        object.__setattr__(self, "log", tuple(self.log))
        if self.threads is not None and not 1 <= self.threads <= MOST_THREADS:
            raise CosdaError(f"threads = {shown(self.threads)} is not possible; it must be from 1 to {MOST_THREADS:,}.")
        check_writers(self.log)
        if self.compile:
            check_compiler()

    @property
    def cache_folder(self) -> Path | None:
        """The cache as a path; None for the default one."""
        return None if self.cache is None else Path(self.cache)

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

    @contextmanager
    def open(self) -> Iterator[torch.device]:
        """The device. Afterwards torch's thread count and global random numbers are as the program around left them."""
        self.join()
        device, threads = self._take(), torch.get_num_threads()
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        try:
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                yield device
        finally:
            torch.set_num_threads(threads)

    def _take(self) -> torch.device:
        name = self._device
        try:
            found = torch.zeros(1, device=name)
            found.item()  # some devices hold no numbers
            return found.device
        except (RuntimeError, AssertionError) as error:
            raise CosdaError(f"device '{name}' cannot be used: {first_line(error)}. Try --device cpu.") from None

"""How the passes of a network are computed: in which precision, and whether compiled."""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from cosda.errors import CosdaError

M = TypeVar("M", bound=nn.Module)
Precision = Literal["32", "bf16", "16"]

DTYPES = {"bf16": torch.bfloat16, "16": torch.float16}
# What processors call it when they multiply bf16; others imitate it, many times slower than float32.
BF16 = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")
# Some virtual machines announce instructions (AMX) that kill whoever uses them: in products, and on the way back
# through strided convolutions.
TRIAL = """
import torch
layers = torch.nn.Sequential(torch.nn.Conv2d(16, 32, 3, stride=2), torch.nn.Flatten(), torch.nn.Linear(32, 32))
with torch.autocast("cpu", torch.bfloat16):
    made = layers(torch.ones(8, 16, 4, 4, requires_grad=True))
made.float().sum().backward()
"""
VERSIONS = 32  # of one compiled module; torch's own limit of 8 can be reached, and it then goes on uncompiled


@dataclass(frozen=True)
class Arithmetic:
    """Encoder and bottleneck in a precision, compiled or not; classifier and losses are always in float32.

    Weights stay in float32 whatever the precision is: torch's autocast works on copies.
    """

    precision: Precision = "32"
    compiled: bool = False
    backend: str = "inductor"  # of torch.compile

    @property
    def dtype(self) -> torch.dtype | None:
        """In what layers compute that are fit for it; None where all do so in the precision of the weights."""
        return DTYPES.get(self.precision)

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """Within the block layers compute in this precision."""
        return nullcontext() if self.dtype is None else torch.autocast(device.type, self.dtype)

    def ready(self, module: M, images: Tensor) -> M:
        """The same module, which compiles itself when it is called with these images, where that is wanted.

        In place, so that class and names of weights stay; and before each call, because a copy of a compiled module,
        such as a teacher, is not compiled. It shares what was compiled for the first where it is used alike.
        """
        if self.compiled and next(module.parameters(), None) is not None:
            if module._compiled_call_impl is None:
                from torch import _dynamo  # slow to import

                # Training, labelling and measuring, student and teacher: each is a version of its own.
                _dynamo.config.recompile_limit = max(VERSIONS, _dynamo.config.recompile_limit)
                module.compile(backend=self.backend)
            torch._dynamo.maybe_mark_dynamic(images, 0)  # the last batch is smaller: one version for all sizes
        return module


def lacking(precision: Precision, device: torch.device) -> str:
    """What a device lacks for a precision, in words; empty where it lacks nothing."""
    if precision == "32" or (device.type, precision) == ("cuda", "16"):
        return ""
    if device.type == "cuda":
        return "" if torch.cuda.is_bf16_supported(including_emulation=False) else "this GPU has no bf16 arithmetic"
    if precision == "16":
        return "float16 is for GPUs"
    known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    if not any(known.get(name) for name in BF16):
        return "this CPU has no bf16 arithmetic"
    return "" if _survived(TRIAL) else "this CPU fails at the bf16 arithmetic that it announces"


@cache
def _survived(program: str) -> bool:
    """Whether a process of its own comes to the end of a program."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0


def check_compiler() -> None:
    """An error where torch.compile has no C++ compiler to work with."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except Exception:  # of a kind that differs between torch's versions
        raise CosdaError(
            "--compile needs a C++ compiler, and none was found. Install g++, name yours in the variable CXX, or leave "
            "--compile out."
        ) from None

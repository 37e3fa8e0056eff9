"""Forward passes with freed memory kept against the C library's defaults, each in processes of its own."""

from __future__ import annotations

import statistics
import subprocess
import sys

PROGRAM = """
import sys, time, torch
from cosda.models.encoders import build_encoder
from cosda.models.network import place
from cosda.run.memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
encoder = place(build_encoder("resnet18"), torch.device("cpu")).eval()
images = torch.randn(64, 3, 224, 224).contiguous(memory_format=torch.channels_last)
with torch.inference_mode():
    encoder(images)
    start = time.perf_counter()
    for _ in range(3):
        encoder(images)
print(time.perf_counter() - start)
"""


def measure() -> dict[str, float]:
    """How many times faster passes are with memory kept."""
    seconds: dict[str, list[float]] = {"kept": [], "default": []}
    for _ in range(3):
        for name, values in seconds.items():
            answer = subprocess.run([sys.executable, "-c", PROGRAM, name], check=True, capture_output=True, text=True)
            values.append(float(answer.stdout))
    ratio = statistics.median(seconds["default"]) / statistics.median(seconds["kept"])
    return {"ResNet-18, 224 px, batch 64, inference": ratio}

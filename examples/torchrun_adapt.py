"""Two processes, or as many GPUs as there are, adapt one model together.

It shows that a script is the same for one process and for many: each makes the same calls and gets the same result.

    pip install cosda
    cosda source digits --domain print --model print-model        # somebody's trained model; yours is there already
    torchrun --nproc-per-node 2 torchrun_adapt.py        # writes runs/ and adapted-model/
"""

import os
import sys
from pathlib import Path

import cosda

if not Path("print-model").exists():
    sys.exit("There is no print-model here. First: cosda source digits --domain print --model print-model")

# Yours may be folders: "my-model", "photos/warehouse". Labels of `check` decide the verdict, and train nothing.
model, new = cosda.load("print-model"), cosda.load_benchmark("digits")["outline"]
result = cosda.adapt(model, new, "aad", carry="bank", epochs=3, check=new, out="runs")
result.model.save("adapted-model", overwrite=True)  # the first process writes it

if os.environ.get("RANK", "0") == "0":  # else every process would print
    processes, check, verdict = result.run.environment["processes"], result.check, result.verdict
    print(f"outline, {processes} processes: {check.before.top1:.1%} before, {check.after.top1:.1%} after")
    print("verdict with labels:", verdict.verdict, *verdict.reasons, sep="\n  ")

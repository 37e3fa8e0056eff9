"""Many runs on a Ray cluster, and what they found, in a program of your own.

It shows `cosda bench --engine ray`, which does the runs that are missing, and `cosda.find_runs`, which reads them.

    pip install 'cosda[ray]'
    python ray_bench.py        # starts a cluster on this machine, which ends with it; writes ray-runs/
"""

import subprocess
import sys
from statistics import mean

import cosda

# On a cluster that is there add: --address HEAD:6379, and data and runs where all nodes see them.
COMMAND = """cosda bench digits --methods source,aad --pairs print>outline --seeds 2 --epochs 3
    --engine ray --workers 2 --out ray-runs --quiet"""
done = subprocess.run([sys.executable, "-m", *COMMAND.split()])
if done.returncode:
    sys.exit(done.returncode)  # the command has said why

accuracies = {}
for run in cosda.find_runs("ray-runs"):
    accuracies.setdefault(run.config["method"], []).append(run.matrix()[-1][-1])
for method, found in accuracies.items():
    print(f"{method}: {mean(found):.1%} on outline, mean of {len(found)} seeds")

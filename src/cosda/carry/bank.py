"""A domain bank: the model stays as it is, each domain leaves an expert beside it, and images are routed.

Any method adapts a network as it always does; what is handed on is the bank with one expert more. See
`cosda.models.experts` and docs/bank.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from cosda.carry.base import CarryRule, Predict, State, Target
from cosda.errors import CosdaError
from cosda.settings import setting

if TYPE_CHECKING:
    from torch import Tensor

    from cosda.models.experts import DomainBank
    from cosda.models.network import Network

BITS = (2, 4, 8)


def _bits(value: Any) -> int:
    if isinstance(value, bool) or value not in BITS:
        raise CosdaError(f"an expert has 2, 4 or 8 bits a weight, not {value}.")
    return int(value)


@dataclass(frozen=True)
class Bank(CarryRule):
    """The bank that the stage began with and an expert of so many bits a weight."""

    title: ClassVar[str] = (
        "the model as it was and an expert for each domain, which images find by themselves, such as bank=4 (bits)"
    )
    enlarges: ClassVar[bool] = True

    bits: int = setting(4, "bits of each weight of an expert: 2, 4 or 8", check=_bits)

    @property
    def label(self) -> str:
        """Only what is unusual is said."""
        return "" if self.bits == 4 else super().label

    def check(self, given: Network | None, target: str, images: int) -> None:
        """Too few images for a profile, or a name that is taken."""
        from cosda.models.profile import check_enough

        check_enough(target, images)
        if given is not None and target == as_bank(given, False).known[0]:
            raise CosdaError(f"'{target}' is what the model was trained on. Give the new images a --domain NAME.")

    def student(self, known: Network, target: Target, begin: str) -> tuple[Network, dict[str, Any]]:
        """The expert from which a new one begins: the previous one, the one whose domain is most similar, or the base.

        That of the same domain where there is one: it is adapted once more, and takes the place of the old one.
        """
        self.check(known, target.name, len(target))
        bank = self._see_base(as_bank(known, target.frozen), target)
        if target.name in bank.known:
            return bank.expert(target.name), {"began": target.name}
        place = {"base": 0, "previous": len(bank.experts)}.get(begin)
        if place is None:
            place = _nearest(bank, target.statistics(bank.gauge))
        return bank.expert(bank.known[place]), {"began": bank.known[place]}

    def hand_on(
        self, incoming: State, adapted: State, along: State | None, predict: Predict
    ) -> tuple[State, dict[str, Any]]:
        """The adapted model, of which `keep` makes an expert."""
        return dict(adapted), {"share": 0.0, "bits": self.bits}

    def keep(self, whole: Network, student: Network, target: Target) -> Network:
        """The bank with one expert more."""
        from cosda.models.experts import Expert

        bank = as_bank(whole, target.frozen)
        others = tuple(profile for profile in bank.profiles if profile.name != target.name)
        own = bank.base.for_domain(bank.known[0]) if bank.base.needs_domain else bank.base
        profile = target.profile(bank.gauge, student, others, stranger=own)
        return bank.with_expert(Expert.make(student, bank.base, self.bits, profile))

    def _see_base(self, bank: DomainBank, target: Target) -> DomainBank:
        """Where the base has no profile, make one of what its BatchNorm layers remember, or say what is missing."""
        from cosda.models.router import Gauge

        if bank.profile is not None:
            return bank
        # A profile of the other kind, of a frozen encoder or not, is left alone; experts have theirs already.
        if bank.base.profile is None and not bank.experts:
            gauge = Gauge(bank.base.encoder, bank.late, full=True)
            within = target.statistics(gauge).var(dim=0)
            bank.base.profile = gauge.remembered(bank.known[0], target.image(), within)
            bank = as_bank(bank.base, target.frozen)
        advice = "'cosda profile MODEL FOLDER' makes one from images of the kind that it was trained on."
        if bank.profile is None:
            target.note(
                "the model has no profile of what it was trained on: only images that are unlike all new domains are "
                f"answered by the model as it was. {advice}"
            )
        else:
            target.note(
                "the model has no profile of what it was trained on; its BatchNorm statistics stand in for one, which "
                f"sends more of its images to experts of similar domains. {advice}"
            )
        return bank


def as_bank(network: Network, frozen: bool) -> DomainBank:
    """A network as a bank, which may be without experts."""
    from cosda.models.experts import DomainBank

    return network if isinstance(network, DomainBank) else DomainBank(network, (), late=frozen)


def _nearest(bank: DomainBank, statistics: Tensor) -> int:
    """The place of the domain that most of the images would be taken for."""
    if not bank.experts:
        return 0
    return int(bank.route(statistics).posterior.mean(dim=0).argmax())

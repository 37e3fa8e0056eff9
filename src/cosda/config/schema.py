"""The settings that every run has, by section; those of a method are its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from cosda.carry import CarryRule, parse_rule, rule_text
from cosda.errors import CosdaError
from cosda.settings import setting


def _carry_text(value: Any) -> str:
    return rule_text(parse_rule(str(value)))


@dataclass(frozen=True)
class DataSettings:
    """How images become inputs."""

    size: int | None = setting(None, "pixels of each side; 'none' takes what the encoder was made for", low=8)
    profile: Literal["cosda", "shot"] = setting("cosda", "how training and test boxes are cut")
    flip: bool = setting(True, "whether training images may be mirrored")


@dataclass(frozen=True)
class NetworkSettings:
    """What the network is made of."""

    encoder: str = setting("lite0", "encoder; 'cosda methods --encoders' lists them")
    weights: str | None = setting(None, "file with the encoder's weights, or 'pretrained' for timm, hf, torchvision")
    bottleneck: int = setting(256, "features after the bottleneck", low=1, symbol="d")
    freeze_encoder: bool = setting(False, "compute the encoder's features once and train the head alone")
    precision: Literal["32", "bf16", "16"] = setting(
        "32", "bits of training and measuring, where the device has them; features that are stored have 32"
    )


@dataclass(frozen=True)
class EdgeSettings:
    """Where the edges come from that ``edgemix`` mixes into training images."""

    operator: Literal["sobel", "dexined"] = setting("sobel", "what finds edges; 'dexined' needs edges.weights")
    weights: str | None = setting(None, "file with DexiNed's weights; never downloaded")
    clean_epochs: int = setting(2, "last epochs, which see images without edges", low=0)
    input: Literal["centred", "authors"] = setting(
        "centred", "DexiNed sees centred BGR, as in its training, or the authors' stretched RGB"
    )


@dataclass(frozen=True)
class Optimisation:
    """SGD with momentum; the rate falls along a cosine once an epoch and starts anew with each target."""

    epochs: int = setting(20, "epochs for each target", low=0, symbol="E")
    batch_size: int = setting(64, "images in a batch", low=1, symbol="B")
    epoch_images: int = setting(0, "at most so many images an epoch; 0 is all", low=0)
    lr: float = setting(2e-3, "learning rate of the head at the start", low=0)
    lr_end: float = setting(1e-3, "learning rate of the head at the end; other groups fall in proportion", low=0)
    shared_floor: bool = setting(False, "all groups end at lr_end, as in the authors' schedule, and not in proportion")
    momentum: float = setting(0.9, "momentum of SGD", low=0, high=1)
    nesterov: bool = setting(False, "Nesterov momentum")
    weight_decay: float = setting(5e-4, "weight decay, on all parameters", low=0)
    edgemix: float = setting(1.0, "share of the image beside its edges; 1 mixes none, 0.9 is EdgeMix", low=0, high=1)

    def __post_init__(self) -> None:
        if self.lr_end > self.lr:
            raise CosdaError(
                f"lr_end = {self.lr_end:g} exceeds lr = {self.lr:g}: rates never rise in training. "
                "Lower lr_end or raise lr."
            )


@dataclass(frozen=True)
class AdaptSettings(Optimisation):
    """Adaptation to a target."""

    statistics: Literal["native", "own", "merged"] = setting(
        "native", "BatchNorm statistics of the model that is measured and handed on; 'native' is the method's choice"
    )
    merge_momentum: tuple[float, float] = setting(
        (0.95, 0.99), "how slowly merged statistics follow, for methods that do not merge them", low=0, high=1
    )
    validate: int = setting(1000, "images by which label-free validators judge each epoch; 0 is none", low=0)
    measure: Literal["source", "target"] = setting(
        "source", "after each epoch measure the target alone, or the source too (to see other selection rules later)"
    )
    carry: str = setting("last", "what a stage hands on: a carry rule, or rule=value", check=_carry_text)

    begin: Literal["nearest", "previous", "base"] = setting(
        "nearest", "carry bank: from which expert a new one begins; 'nearest' is that of the most similar domain"
    )

    @property
    def carry_rule(self) -> CarryRule:
        """The rule that ``carry`` names."""
        return parse_rule(self.carry)


@dataclass(frozen=True)
class SourceSettings(Optimisation):
    """Training of the source model: the same, with labels."""

    lr: float = setting(1e-2, "learning rate of the head at the start", low=0)
    lr_end: float = setting(2e-4, "learning rate of the head at the end", low=0)
    encoder_rate: float = setting(0.1, "learning rate of the encoder relative to the head's", low=0, high=1)
    label_smoothing: float = setting(0.1, "share of the label that is spread over all classes", low=0, high=1)
    holdout: float = setting(0.1, "share of the source's training images kept for measuring only", low=0, high=0.9)


SECTIONS: dict[str, type] = {
    "data": DataSettings,
    "network": NetworkSettings,
    "source": SourceSettings,
    "adapt": AdaptSettings,
    "edges": EdgeSettings,
}

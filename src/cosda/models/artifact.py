"""A model: a network with its classes and all that using it takes; saved as a folder (`folder`) and opened from one."""

from __future__ import annotations

import copy
import datetime
import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import nn

from cosda import hub
from cosda.distributed import collectives
from cosda.errors import CosdaError
from cosda.files import encoded, real_path, write_atomically
from cosda.models.architecture import WRAPPED, Architecture
from cosda.models.builders import Builder, build_again
from cosda.models.card import card
from cosda.models.encoders.base import Preprocessing, prefix
from cosda.models.encoders.weights import check_layout, layout, read_metadata
from cosda.models.experts import DomainBank, Expert, Stored
from cosda.models.finite import check_finite
from cosda.models.folder import (
    CARD,
    DESCRIPTION,
    ENCODER,
    FORMAT,
    HEAD,
    PATTERNS,
    as_text,
    check_free,
    damaged,
    expert_file,
    graph_file,
    profile_file,
    read_description,
    read_weights,
)
from cosda.models.masks import MaskedNetwork
from cosda.models.network import Network
from cosda.models.opaque import Graph, is_graph, open_network
from cosda.models.packing import CLIPS
from cosda.models.profile import DomainProfile
from cosda.models.split import join, split
from cosda.records.lineage import read_lineage
from cosda.shown import Facts, Shown

LISTED = 10  # classes that are named where a model is shown


@dataclass
class Model(Shown):
    """A network with all that is needed to use it: class names, preprocessing, and where it comes from."""

    network: Network = field(repr=False)  # hundreds of lines
    architecture: Architecture
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    lineage: list[dict[str, Any]] = field(default_factory=list, repr=False)
    origin: Path | None = field(default=None, compare=False)  # the folder that it was loaded from

    def __post_init__(self) -> None:
        self.classes = tuple(self.classes)
        if len(self.classes) != self.architecture.classes:
            raise CosdaError(
                f"the network tells {self.architecture.classes} classes apart, "
                f"but {len(self.classes)} class names were given."
            )

    def _facts(self) -> Facts:
        seen, more = self.preprocessing, len(self.classes) - LISTED
        weights = sum(parameter.numel() for parameter in self.network.base.parameters())
        steps = read_lineage(self.lineage, "the model's lineage cannot be read")
        rows = [
            ("classes", ", ".join(self.classes[:LISTED]) + (f" and {more} more" if more > 0 else "")),
            ("network", f"{self.architecture.encoder}, {weights:,} weights"),
            ("input", f"images of {seen.size} × {seen.size} pixels" if seen.of_images else "feature vectors"),
            ("made by", " → ".join(f"{step.step} {step.domain or step.method or ''}".rstrip() for step in steps)),
        ]
        if isinstance(self.network, DomainBank):
            base, *others = self.domains
            rows.append(("domain bank", f"{base} (the base), experts for {', '.join(others)}"))
        elif self.domains:
            rows.append(("masks", ", ".join(self.domains)))
        return Facts(f"a classifier of {len(self.classes)} classes", rows)

    @property
    def key(self) -> str:
        """Names the bits of the network."""
        key = weights_key(self.network)
        beside = [hashlib.sha256(content).hexdigest() for content in _beside(self.network).values()]
        return hashlib.blake2b("".join([key, *beside]).encode(), digest_size=16).hexdigest() if beside else key

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains that ``domain=`` may name: a bank's, its base's first, or those with a mask; else none."""
        return self.network.known if isinstance(self.network, DomainBank) else self.network.domains

    def without(self, domain: str) -> Model:
        """The same model without the expert of a domain; a bank without experts is the plain model that it began as.

        The base and the other experts answer as before, to the bit. Their weights are shared with this model.

        Raises:
            CosdaError: there is no such expert.

        Example:
            >>> cosda.load("adapted-model").without("new-site").save("adapted-model", overwrite=True)
        """
        if not isinstance(self.network, DomainBank):
            raise CosdaError(f"the model is no domain bank, so it has no expert for '{domain}' to take out.")
        left: Network = self.network.without(domain)
        if not self.network.experts[1:]:
            left = left.base
            if left.profile is not None and not left.profile.images:  # the bank made it of BatchNorm statistics
                left = left.with_encoder(left.encoder).eval()
                left.profile = None
        return replace(self, network=left, lineage=[*self.lineage, _step("drop", domain)])

    def with_profile(self, profile: DomainProfile) -> Model:
        """A copy with this profile of what it was trained on, in place of any that it has; a bank's router follows.

        `cosda.profile` makes one from images.

        Raises:
            CosdaError: the profile does not fit a bank, or has the name of one of its experts.
        """
        self.check_own_name(profile.name)
        others = self.network.experts[:1] if isinstance(self.network, DomainBank) else ()
        if any(_kind(profile) != _kind(one.profile) for one in others):
            raise CosdaError("the profile was made by another network than this one's, or at another place of it.")
        network = copy.deepcopy(self.network)
        network.base.profile = profile
        step = _step("profile", profile.name, images=profile.images)
        return replace(self, network=network, lineage=[*self.lineage, step])

    def check_own_name(self, name: str) -> None:
        """An error where a name for what the model was trained on is that of an expert."""
        if isinstance(self.network, DomainBank) and name in self.network.known[1:]:
            raise CosdaError(
                f"the model has an expert for '{name}' already. Give the images of the kind that it was trained on "
                "another name: --domain NAME (in Python domain='NAME')."
            )

    def save(self, path: str | Path, overwrite: bool = False, link: bool = False) -> Path:
        """Write the model folder, whole or not at all; equal models give equal bytes.

        Of several processes that hold the model together, the first one writes.

        Args:
            path: the folder.
            overwrite: replace a model that is there. Nothing but a folder that holds a model and nothing else is ever
                replaced.
            link: do not write a weights file again that is still that of the folder the model was loaded from, but link
                to it; both are then one file on the disk.

        Returns:
            The folder's whole path.

        Raises:
            CosdaError: there is something at the path that may not be replaced, or the folder cannot be written.
        """
        path = real_path(Path(path).expanduser())  # behind a link, it is the folder that is replaced
        if not collectives.is_main():
            return path
        check_free(path, overwrite)
        check_finite(self.network, "the model")
        weights, readme = self._weights(), card(self).encode("utf-8", "replace")
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in (*weights.items(), (CARD, readme))}
        description = {
            "format": FORMAT,
            "architecture": self.architecture.as_json(),
            "classes": list(self.classes),
            "preprocessing": self.preprocessing.as_json(),
            "lineage": self.lineage,
            "sha256": hashes,
        }
        if isinstance(self.network, DomainBank):
            experts = [{"domain": expert.domain, "bits": expert.bits} for expert in self.network.experts]
            description["experts"] = {"late": self.network.late, "experts": experts}
        text = as_text(description)

        def fill(folder: Path) -> None:
            folder.mkdir()
            for name, content in weights.items():
                if not (link and self._link(name, folder / name, hashes[name])):
                    (folder / name).write_bytes(content)
            (folder / CARD).write_bytes(readme)
            (folder / DESCRIPTION).write_bytes(encoded(text))

        return write_atomically(path, fill)

    def save_pretrained(
        self,
        save_directory: str | Path,
        *,
        repo_id: str | None = None,
        push_to_hub: bool = False,
        **push_to_hub_kwargs: Any,
    ) -> str | None:
        """`save` under the name and with the arguments of huggingface_hub's ``ModelHubMixin``.

        A model that is there is replaced; anything else is an error. The network is touched only if you ask for it.

        Args:
            save_directory: the folder.
            repo_id: ORG/NAME on the hub, with ``push_to_hub``; by default the name of the folder.
            push_to_hub: upload the model as well.
            push_to_hub_kwargs: what the method `push_to_hub` takes.

        Returns:
            The address of the commit on the hub, if there is one.

        Raises:
            CosdaError: as of `save` and `push_to_hub`.
        """
        path = self.save(save_directory, overwrite=True)
        return self.push_to_hub(repo_id or path.name, **push_to_hub_kwargs) if push_to_hub else None

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        force_download: bool = False,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        revision: str | None = None,
        **model_kwargs: Any,
    ) -> Model:
        """`load` under the name and with the arguments of huggingface_hub's ``ModelHubMixin``.

        A folder is read, and no network touched. Of a repository on the hub the files of a model and no others are
        fetched: plain tensors and JSON. Nothing is unpickled, and no code is run that it brings.

        Args:
            pretrained_model_name_or_path: a folder, or ORG/NAME of a model on the hub.
            force_download: fetch what is there already.
            token: of the hub, for repositories that need one; by default the one of ``hf auth login``.
            cache_dir: where copies lie; by default the hub's own cache.
            local_files_only: take the copy that is there, and ask nobody.
            revision: branch, tag or commit; by default the newest of ``main``.
            model_kwargs: ``device`` and ``build``, see `load`.

        Raises:
            CosdaError: as of `load`; or the hub has no such model, or is out of reach and there is no copy.

        Example:
            >>> model = cosda.Model.from_pretrained("org/warehouse-model", revision="v2")
        """
        path = Path(pretrained_model_name_or_path).expanduser()
        if not path.is_dir():
            path = hub.download(
                str(pretrained_model_name_or_path),
                "model",
                list(PATTERNS),
                revision=revision,
                cache_dir=cache_dir,
                force_download=force_download,
                token=token,
                local_files_only=local_files_only,
            )
        return load(path, **model_kwargs)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        commit_message: str = "Push model using huggingface_hub.",
        private: bool | None = None,
        token: str | None = None,
        branch: str | None = None,
        create_pr: bool | None = None,
        allow_patterns: list[str] | str | None = None,
        ignore_patterns: list[str] | str | None = None,
        delete_patterns: list[str] | str | None = None,
    ) -> str:
        """Upload the model to the hub, as huggingface_hub's ``ModelHubMixin`` does; its card is the README there.

        Args:
            repo_id: ORG/NAME; the repository is made if there is none.
            commit_message: of the commit.
            private: whether a new repository is; by default as its owner has it.
            token: of the hub; by default the one of ``hf auth login``.
            branch: to push to; by default ``main``.
            create_pr: make a pull request instead.
            allow_patterns: only files that fit one of them.
            ignore_patterns: no file that fits one of them.
            delete_patterns: files of the repository that the commit deletes.

        Returns:
            The address of the commit.

        Raises:
            CosdaError: the hub cannot be reached, or refuses.
        """
        with tempfile.TemporaryDirectory(prefix="cosda-") as folder:
            return hub.upload(
                self.save(Path(folder) / "model"),
                repo_id,
                private=private,
                token=token,
                commit_message=commit_message,
                revision=branch,
                create_pr=create_pr,
                allow_patterns=allow_patterns,
                ignore_patterns=ignore_patterns,
                delete_patterns=delete_patterns,
            )

    def module(self, domain: str | None = None) -> nn.Module:
        """A copy of the network as a plain `torch.nn.Module` in evaluation mode, to deploy, trace, export or train.

        For a model from `wrap` it is the user's own module again: his class, his names of weights, what it returns, and
        a softmax at its end; only the weights are the adapted ones. For any other it is a `torch.nn.Sequential` that
        gives logits (B, C); that of a domain bank routes each image.

        Args:
            domain: which mask to use, for a model that has one for each domain; of a domain bank, the one whose expert
                is wanted alone.

        Raises:
            CosdaError: the network is a graph in a file, which is no module.

        Example:
            >>> adapted = cosda.adapt(cosda.wrap(mine, classes), "photos").model
            >>> mine.load_state_dict(adapted.module().state_dict())
        """
        self.check_module()
        network = self.network.for_domain(domain)
        if self.architecture.classifier is None or network.base is not network:
            return network.plain().eval()
        return join(network, self.architecture.classifier).eval()

    def check_module(self) -> None:
        """An error where the network is no module that could be exported: it is the graph in a file already."""
        if is_graph(self.architecture):
            raise CosdaError(
                "the network is a graph, which is no torch.nn.Module and needs no export. Deploy its file, "
                f"{graph_file(self.architecture.encoder)} in the model folder."
            )

    def _weights(self) -> dict[str, bytes]:
        """The content of each weights file."""
        # Clones, because safetensors refuses tensors that share memory, as tied weights do.
        state = {k: v.detach().cpu().clone().contiguous() for k, v in self.network.state_dict().items()}
        encoder = {key: state.pop(key) for key in list(state) if key.startswith("encoder.")}
        said = layout(self.network.encoder)  # names and shapes do not tell it
        metadata = {"layout": said} if said else None
        files = {ENCODER: safetensors.torch.save(encoder, metadata), HEAD: safetensors.torch.save(state)}
        return files | _beside(self.network)

    def _link(self, name: str, place: Path, sha256: str) -> bool:
        """Link to the same file of the folder that the model was loaded from, if it has not changed since."""
        if self.origin is None:
            return False
        try:
            if sha256 != hashlib.sha256((self.origin / name).read_bytes()).hexdigest():
                return False
            os.link(self.origin / name, place)
        except OSError:  # another disk, or a file system without links, or no such folder any more
            return False
        return True


def _step(step: str, domain: str, **facts: Any) -> dict[str, Any]:
    """A line of the lineage."""
    return {"step": step, "domain": domain, **facts, "date": datetime.date.today().isoformat()}


def _kind(profile: DomainProfile) -> tuple[Any, ...]:
    """How its statistics were read: two profiles of other kinds cannot be compared."""
    return profile.late, profile.full, profile.mean.shape


def _beside(network: Network) -> dict[str, bytes]:
    """The content of the files of a network's graph and profile, and of a bank's experts."""
    own, encoder = network.base.profile, network.encoder
    files = {graph_file(encoder.format): encoder.content} if isinstance(encoder, Graph) else {}
    files |= {} if own is None else {profile_file(0): own.to_bytes()}
    for number, expert in enumerate(network.experts if isinstance(network, DomainBank) else (), start=1):
        files |= {expert_file(number): expert.read(), profile_file(number): expert.profile.to_bytes()}
    return files


def weights_key(module: nn.Module) -> str:
    """Names the bits of a network."""
    state = {key: value.detach().cpu().clone().contiguous() for key, value in module.state_dict().items()}
    return hashlib.blake2b(safetensors.torch.save(state), digest_size=16).hexdigest()


def load(path: str | Path, device: str | torch.device = "cpu", build: Builder | str | None = None) -> Model:
    """Open a model folder; the network is in evaluation mode.

    Args:
        path: the folder, as `Model.save` wrote it; or ``hf:ORG/NAME``, a model on the hub (`Model.from_pretrained`).
        device: where the network is to be.
        build: for a model from `wrap`, a function that returns a module of the same shape as the one that was wrapped,
            trained or not; or its name, ``"module:function"``, which the model then remembers. Only your code can build
            it: cosda stores weights and no code, and runs none that is not named here. A model of timm, torchvision or
            transformers from `import_model` needs none, because the library builds it.

    Raises:
        CosdaError: there is no model, it is damaged, or it needs ``build``.

    Example:
        >>> model = cosda.load("adapted", build=lambda: torchvision.models.resnet50(num_classes=3))
    """
    if (name := hub.name_of(str(path))) is not None:
        return Model.from_pretrained(name, device=device, build=build)
    path = Path(path).expanduser()
    description = read_description(path)
    weights = read_weights(path, description)
    architecture = Architecture.from_json(description["architecture"], damaged(path))
    preprocessing = Preprocessing.from_json(description["preprocessing"], damaged(path))
    classes, lineage = tuple(description["classes"]), list(description["lineage"])
    _check_sizes(architecture, weights, path)
    # A new network draws random weights, which are then replaced: the caller's random numbers must not move.
    with torch.random.fork_rng(devices=[]):
        if architecture.encoder == WRAPPED:
            module, builder = build_again(architecture, build)
            architecture = replace(architecture, builder=builder)
            network = split(module, architecture.classifier or "", preprocessing, architecture.tail)
        elif is_graph(architecture):
            name = graph_file(architecture.encoder)
            content = Stored(path / name, description["sha256"].get(name, "")).read()
            network = open_network(architecture, preprocessing, content)
        else:
            network = architecture.build(weights="random")
    model = Model(network, architecture, classes, preprocessing, lineage, real_path(path))
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines()[1:4])
        meant = "that build= makes" if architecture.encoder == WRAPPED else f"that its {DESCRIPTION} describes"
        raise CosdaError(f"the weights in {path} do not fit the network {meant}: {reason}") from None
    check_finite(network, f"the model in {path}")
    check_layout(network.encoder, read_metadata(path / ENCODER), path / ENCODER)
    model.network = _with_experts(network, path, description)
    model.network.to(device).eval()
    return model


def load_like(path: str | Path, model: Model) -> Model:
    """Open a model folder whose network has the shape of ``model``: also one that only the user's code can build."""
    path = Path(path)
    description = read_description(path)
    network, architecture = copy.deepcopy(model.network.base), Architecture.from_json(description["architecture"])
    if isinstance(network, MaskedNetwork):  # it may have learnt new domains
        network = network.with_domains(architecture.domains, torch.Generator())
    network.load_state_dict(read_weights(path, description))
    network = _with_experts(network, path, description, lazily=False).eval()
    return replace(model, network=network, architecture=architecture, lineage=list(description["lineage"]))


def _with_experts(network: Network, path: Path, description: dict[str, Any], lazily: bool = True) -> Network:
    """A network with its profile, and with its experts where it is a domain bank.

    ``lazily`` leaves experts in their files until they are needed; the folder must then stay.
    """
    hashes = description["sha256"]

    def profile(number: int) -> DomainProfile:
        name = profile_file(number)
        return DomainProfile.from_bytes(Stored(path / name, hashes.get(name, "")).read(), str(path / name))

    network.profile = profile(0) if profile_file(0) in hashes else None
    bank = description.get("experts")
    if bank is None:
        return network
    experts = []
    for number, facts in enumerate(bank["experts"], start=1):
        stored = Stored(real_path(path / expert_file(number)), hashes.get(expert_file(number), ""))
        content = stored if lazily else stored.read()
        experts.append(Expert(facts["domain"], facts["bits"], profile(number), content))
    _check_experts(experts, path)
    return DomainBank(network, experts, bank["late"])


def _check_experts(experts: Sequence[Expert], path: Path) -> None:
    """An error for experts that cannot be those of one bank."""
    names = [expert.domain for expert in experts]
    if names != [expert.profile.name for expert in experts] or len(set(names)) < len(names):
        raise CosdaError(f"{damaged(path)}: its experts and their profiles are not of the same domains, each once.")
    if any(expert.profile.covariance is None for expert in experts):
        raise CosdaError(f"{damaged(path)}: the profile of an expert has no covariance.")
    if len({_kind(expert.profile) for expert in experts}) > 1:
        raise CosdaError(f"{damaged(path)}: the profiles of its experts were made by different networks.")
    if wrong := [expert.bits for expert in experts if expert.bits not in CLIPS]:
        raise CosdaError(f"{damaged(path)}: weights have {', '.join(map(str, CLIPS))} bits, not {wrong[0]}.")


def _check_sizes(architecture: Architecture, weights: Mapping[str, torch.Tensor], path: Path) -> None:
    """An error for a network that is larger than the weights in the folder, before memory is taken for it."""
    sizes = {size for tensor in weights.values() for size in tensor.shape}
    family, width = prefix(architecture.encoder)
    claimed = {
        "classes": architecture.classes,
        "bottleneck": architecture.bottleneck,
        "input_width": architecture.input_width,
        "encoder": int(width) if family == "identity" and width.isdecimal() and len(width) < 10 else None,
    }
    if is_graph(architecture):  # its weights lie in the graph
        return
    for name, claim in claimed.items():
        if claim and claim not in sizes:
            raise CosdaError(
                f"{damaged(path)}: the weights beside it do not fit the network that it describes: none of them has "
                f"the size of architecture.{name} = {claim}."
            )

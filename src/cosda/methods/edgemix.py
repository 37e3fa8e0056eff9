"""EdgeMix: Balancing Discriminability and Transferability for Source-Free Domain Adaptation.
Kundu et al., ICML 2022, https://arxiv.org/abs/2206.08009

Edges of an image look much the same in every domain, its colours and textures do not. So every training image
becomes nine parts image and one part its own edges, which leaves less of the domain in it; in the last two epochs,
and always at test time, images are clean. This belongs to the data and not to a method: `--set adapt.edgemix=0.9`
does it with any method, `--set source.edgemix=0.9` in source training, and this file is only the study's row, which is
NRC with it. It keeps what NRC keeps.

Where we depart: the study takes edges from DexiNed with weights that it does not publish. Here edges are Sobel's unless
the user gives such a file (`edges.operator`, `edges.weights`), which is then fed as it was trained and not as the study
does (`edges.input`). Feature vectors have no edges: on them this is NRC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from cosda.methods.nrc import NRC


@dataclass
class EdgeMix(NRC):
    """NRC on images that are mixed with their edges."""

    title: ClassVar[str] = "NRC on images mixed with their edges"
    preset: ClassVar[dict[str, dict[str, Any]]] = {"adapt": {"edgemix": 0.9}}

"""A network of your own and a torch `Dataset` of the new images; what comes back is a plain module again.

It shows `cosda.wrap`, a `Dataset` given to `cosda.adapt` as it is, and `module()` with the adapted weights.

    pip install cosda
    python torch_dataset.py        # writes adapted.pth
"""

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

import cosda


class Photos(Dataset):
    """Pairs (image, label), without random views and without normalisation. Yours may open files."""

    def __init__(self, place):
        domain = cosda.load_benchmark("digits")[place]
        self.pixels, self.labels = domain.items[domain.train], domain.labels[domain.train]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, position):
        return Image.fromarray(self.pixels[position]), int(self.labels[position])


def as_batch(pairs):
    """Images as the network wants them, from -1 to 1."""
    images = torch.from_numpy(np.stack([np.asarray(image) for image, _ in pairs]))
    return images.permute(0, 3, 1, 2) / 127.5 - 1, torch.tensor([label for _, label in pairs])


old, new = Photos("print"), Photos("outline")
torch.manual_seed(0)
network = nn.Sequential(
    *(nn.Conv2d(3, 16, 5, 2, 2), nn.BatchNorm2d(16), nn.ReLU()),
    *(nn.Conv2d(16, 32, 5, 2, 2), nn.BatchNorm2d(32), nn.ReLU()),
    *(nn.Conv2d(32, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU()),
    *(nn.Flatten(), nn.Linear(512, 10)),
)
optimiser = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
for _epoch in range(6):
    for images, labels in DataLoader(old, batch_size=64, shuffle=True, collate_fn=as_batch):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        optimiser.step()

preprocessing = cosda.Preprocessing(32, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), flip=False)
model = cosda.wrap(network, classes=list("0123456789"), preprocessing=preprocessing)
result = cosda.adapt(model, new, "aad", domain="outline", epochs=3, settings={"adapt.lr": 0.01})  # reads no labels
torch.save(result.model.module().state_dict(), "adapted.pth")  # the names of weights are those of `network`

before, after = cosda.evaluate(model, new).top1, cosda.evaluate(result.model, new).top1  # reads them to measure
print(f"outline: {before:.1%} before, {after:.1%} after")
print("verdict without labels:", result.verdict.verdict, *result.verdict.reasons, sep="\n  ")

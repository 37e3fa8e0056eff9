"""A vision transformer of Hugging Face that meets the pictures of another camera.

It shows `cosda.wrap`: a network that you have in Python is adapted and comes back under its own names of weights.

    pip install 'cosda[transformers]'
    python hf_vit.py        # writes adapted-vit/
"""

import sys

import numpy as np
import torch

import cosda

try:
    from transformers import ViTConfig, ViTForImageClassification
except (ImportError, RuntimeError) as error:  # not there, or a torchvision that does not fit torch
    sys.exit(f"This example needs transformers: pip install 'cosda[transformers]' ({error.__cause__ or error})")


def seen_by_another_camera(pictures):
    """Pale and grey, with a little noise."""
    noise = np.random.default_rng(0).normal(0, 5, pictures.shape)
    return np.clip(80 + 0.3 * pictures + noise, 0, 255).astype(np.uint8)


# Handwritten digits; the second camera took others than the first one. Yours may be folders: "photos/new-camera".
hand = cosda.load_benchmark("digits")["hand"]
pictures, labels = np.asarray(hand.items), hand.labels
old = {"images": pictures[:900], "labels": labels[:900]}
new = {"images": seen_by_another_camera(pictures[900:1400]), "labels": labels[900:1400]}

# A tiny network, trained for some seconds. Yours is one line instead:
# vit = ViTForImageClassification.from_pretrained("your-name/your-checkpoint")
torch.manual_seed(0)
size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
vit = ViTForImageClassification(ViTConfig(image_size=32, patch_size=8, num_labels=10, **size))
optimiser = torch.optim.AdamW(vit.parameters(), lr=2e-3)
inputs, wanted = torch.from_numpy(old["images"]).permute(0, 3, 1, 2) / 127.5 - 1, torch.from_numpy(old["labels"])
for _epoch in range(15):
    for rows in torch.randperm(len(inputs)).split(64):
        optimiser.zero_grad()
        vit(inputs[rows], labels=wanted[rows]).loss.backward()
        optimiser.step()

# Size, mean and deviation are those of your image processor; flip=True where left and right mean nothing.
preprocessing = cosda.Preprocessing(32, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), flip=False)
classes = list("0123456789")  # yours: list(vit.config.id2label.values())
model = cosda.wrap(vit, classes, preprocessing=preprocessing)
model = cosda.profile(model, old, domain="old camera", trained_on=True)  # so that a bank can tell the cameras apart
result = cosda.adapt(model, new, "shot", carry="bank", domain="new camera", epochs=3, settings={"adapt.lr": 0.01})
result.model.module(domain="new camera").save_pretrained("adapted-vit")  # its expert alone, for transformers

for camera, data in (("old camera", old), ("new camera", new)):  # labels serve to measure, and nothing else
    before, after = cosda.evaluate(model, data).top1, cosda.evaluate(result.model, data).top1
    print(f"{camera}: {before:.1%} before, {after:.1%} after")
print("verdict without labels:", result.verdict.verdict, *result.verdict.reasons, sep="\n  ")

"""A network of timm with weights of your own, from a file: import, adapt, save.

It shows `cosda.import_model`. The model folder names the network, so that it opens again without code of yours.

    pip install 'cosda[timm]'
    python timm_model.py        # writes trained.pth and adapted-model/
"""

import sys

import torch

import cosda

try:
    import timm
except (ImportError, RuntimeError) as error:  # timm needs torchvision, which must fit torch
    sys.exit(f"This example needs timm, and a torchvision that fits torch: pip install 'cosda[timm]' ({error})")

# Printed digits, and the outlines of such digits. Yours may be folders: "photos/office", "photos/warehouse".
digits = cosda.load_benchmark("digits")
old, new = digits["print"], digits["outline"]

# Somebody's trained weights: a small network of timm, trained for some seconds. Yours are there already.
NAME, GREY = "test_resnet", (0.5, 0.5, 0.5)
torch.manual_seed(0)
network = timm.create_model(NAME, num_classes=10)
optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3)
images = torch.from_numpy(old.items[old.train]).permute(0, 3, 1, 2) / 127.5 - 1
labels = torch.from_numpy(old.labels[old.train])
for _epoch in range(6):
    for rows in torch.randperm(len(images)).split(64):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(images[rows]), labels[rows]).backward()
        optimiser.step()
torch.save(network.state_dict(), "trained.pth")

# With weights that timm fetches: cosda.import_model("timm/resnet50", "pretrained"). Size, mean and deviation are then
# timm's own; here they are what the training above used.
model = cosda.import_model(
    f"timm/{NAME}", "trained.pth", classes=digits.classes, size=32, mean=GREY, std=GREY, flip=False
)
model = cosda.profile(model, old, trained_on=True)  # so that a bank can tell the domains apart
result = cosda.adapt(model, new, "shot", carry="bank", epochs=3, settings={"adapt.lr": 0.01})
result.model.save("adapted-model", overwrite=True)

again = cosda.load("adapted-model")  # in another program, or another year
for data in (old, new):  # labels serve to measure, and nothing else
    before, after = cosda.evaluate(model, data).top1, cosda.evaluate(again, data).top1
    print(f"{data.name}: {before:.1%} before, {after:.1%} after")
print("verdict without labels:", result.verdict.verdict, *result.verdict.reasons, sep="\n  ")

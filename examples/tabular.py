"""A table: a classifier of wines by 13 chemical measurements meets the instruments of another laboratory.

It shows `cosda.wrap` for a torch network of feature vectors, and 30 labelled wines that decide the verdict.

    pip install cosda
    python tabular.py
"""

import numpy as np
import torch
from sklearn.datasets import load_wine
from torch import nn

import cosda

# 178 wines of three growers, which come with scikit-learn. One half was measured in laboratory A, the other half in B,
# whose instruments have another gain and another offset in each column (made here). With pandas yours may be
# table = pandas.read_csv("wines.csv"); values, labels = table.drop(columns="grower").to_numpy(), table["grower"]
table = load_wine()
rng = np.random.default_rng(0)
order = rng.permutation(len(table.data))
values, labels = table.data[order], table.target[order]
values = (values - values[:89].mean(axis=0)) / values[:89].std(axis=0)  # the scale of laboratory A, kept for B
values[89:] = values[89:] * np.exp(rng.normal(0, 0.3, 13)) + rng.normal(0, 1.2, 13)
values = values.astype(np.float32)
laboratory_a = {"features": values[:89], "labels": labels[:89]}
laboratory_b = {"features": values[89:], "labels": labels[89:]}

# The classifier that laboratory A has trained. Yours is there already: any torch network with a last Linear layer.
torch.manual_seed(0)
network = nn.Sequential(nn.Linear(13, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
optimiser = torch.optim.Adam(network.parameters(), lr=0.01, weight_decay=1e-3)
inputs, wanted = torch.from_numpy(values[:89]), torch.from_numpy(labels[:89])
for _step in range(100):
    optimiser.zero_grad()
    nn.functional.cross_entropy(network(inputs), wanted).backward()
    optimiser.step()

model = cosda.wrap(network, classes=table.target_names, example=inputs[:2])
model = cosda.profile(model, laboratory_a, domain="laboratory A", labelled=True, trained_on=True)
few = {"features": values[-30:], "labels": labels[-30:]}  # whose grower somebody knows; may be left out
result = cosda.adapt(model, laboratory_b, "aad", carry="bank", domain="laboratory B", epochs=10, check=few)

for name, data in (("laboratory A", laboratory_a), ("laboratory B", laboratory_b)):  # labels serve to measure alone
    before, after = cosda.evaluate(model, data).top1, cosda.evaluate(result.model, data).top1
    print(f"{name}: {before:.1%} before, {after:.1%} after")
print("verdict with 30 labels:", result.verdict.verdict, *result.verdict.reasons, sep="\n  ")

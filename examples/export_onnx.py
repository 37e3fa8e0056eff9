"""An adapted model becomes one file, which `serve_onnx.py` beside this file then uses without cosda.

It shows `cosda.export`: the file is run on images before it is kept, and refused where it differs from the model.

    pip install 'cosda[onnx]'
    python export_onnx.py        # writes model.onnx, two pictures, runs/
    python serve_onnx.py model.onnx print.png outline.png
"""

import sys
from importlib.util import find_spec

from PIL import Image

import cosda

if not all(map(find_spec, ("onnx", "onnxruntime", "onnxscript"))):
    sys.exit("This example needs the extra onnx: pip install 'cosda[onnx]'")

# Yours: model = cosda.load("adapted-model"), and images of a folder instead of digits["outline"].
digits = cosda.load_benchmark("digits")
model = cosda.train_source(digits, "print").model
model = cosda.adapt(model, digits["outline"], "aad", carry="bank", epochs=3).model

made = cosda.export(model, "model.onnx", verify=digits["outline"], overwrite=True)
print(f"model.onnx differs from the model by {made.difference:.7f} in a probability at most")

pictures = []
for domain in digits["print"], digits["outline"]:
    Image.fromarray(domain.items[domain.test[7]]).save(f"{domain.name}.png")
    pictures.append(f"{domain.name}.png")
for one in cosda.predict(model, pictures, explain=True):
    print(f"cosda says of {one.image}: {one.class_name}, and that it is from {one.route.domain}")
print("now: python serve_onnx.py model.onnx", *pictures)

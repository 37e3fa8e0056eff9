"""Classify images with a file that `cosda export` wrote, without cosda: numpy, Pillow and onnxruntime are enough.

python serve_onnx.py model.onnx photo.jpg other.png ...
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

model, *paths = sys.argv[1:]
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
facts = {key: json.loads(value) for key, value in session.get_modelmeta().custom_metadata_map.items()}
rule = facts["preprocessing"]


def pixels(path):
    """An image as the model wants it: (S, S, 3), RGB, 0 to 255."""
    image = Image.open(path)
    if image.mode == "RGB":  # a large JPEG is decoded at a half, a quarter or an eighth
        image.draft("RGB", (2 * rule["resize"][0], 2 * rule["resize"][1]))
    image = ImageOps.exif_transpose(image)
    if image.has_transparency_data:
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    image = image.convert("RGB").resize(rule["resize"], Image.Resampling.BILINEAR)
    return np.asarray(image.crop(rule["crop"]).resize(rule["size"], Image.Resampling.BILINEAR))


[probabilities] = session.run(["probabilities"], {"images": np.stack([pixels(path) for path in paths])})
for path, row in zip(paths, probabilities, strict=True):
    print(f"{path},{facts['classes'][row.argmax()]},{row.max():.6f}")

#!/bin/sh
# Whole-network training on real pictures: EfficientNet-Lite0 at 96 pixels. About six hours on two cores.
. "$(dirname "$0")/common.sh"
cosda bench "$OFFICE31" --methods source,bn,cosda,aad,nrc,shot,cosda+aad,cosda+nrc --seeds 2 --workers "$WORKERS" \
  --pairs "amazon>dslr,amazon>webcam,dslr>webcam,webcam>dslr" --chains "amazon>dslr>webcam" --encoder lite0 --size 96 \
  --out "$OUT/pictures" --set adapt.measure=target --set adapt.validate=0
cosda report "$OUT/pictures" -o "$OUT/pictures.md"

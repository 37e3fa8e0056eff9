#!/bin/sh
# Whole-network training on real pictures: EfficientNet-Lite0 at 96 pixels. About five hours on two cores.
. "$(dirname "$0")/common.sh"
pictures() {
  cosda bench "$OFFICE31" --encoder lite0 --size 96 --seeds 2 --workers "$WORKERS" --out "$OUT/pictures" \
    --set adapt.measure=target --set adapt.validate=0 "$@"
}
# The pair amazon>dslr is the first stage of the chain.
for method in source,bn,aad,cosda nrc shot,cosda+aad cosda+nrc; do
  pictures --methods $method --chains "amazon>dslr>webcam"
done
pictures --methods aad,nrc,shot --chains "amazon>dslr>webcam" --carry interpolate=0.5
pictures --methods source,bn,aad,cosda,nrc,shot,cosda+aad,cosda+nrc --pairs "amazon>webcam,dslr>webcam,webcam>dslr"
cosda report "$OUT/pictures" -o "$OUT/pictures.md"

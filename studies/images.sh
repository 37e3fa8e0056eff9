#!/bin/sh
# Whole-network training on real images: EfficientNet-Lite0 at 96 pixels. About five hours on two cores.
. "$(dirname "$0")/common.sh"
images() {
  cosda bench "$OFFICE31" --encoder lite0 --size 96 --seeds 2 --workers "$WORKERS" --out "$OUT/images" --variant paper \
    --set adapt.measure=target --set adapt.validate=0 "$@"
}
# What matters most comes first. The pair amazon>dslr is the first stage of the chain.
chain="amazon>dslr>webcam"
pairs="amazon>webcam,dslr>webcam,webcam>dslr"
images --methods source,bn,cosda,aad --chains "$chain"
images --methods cosda --variant default --chains "$chain"
images --methods aad --carry interpolate=0.5 --chains "$chain"
images --methods nrc,shot,cosda+aad,cosda+nrc --chains "$chain"
images --methods source,bn,cosda,aad,nrc,shot,cosda+aad,cosda+nrc --pairs "$pairs"
images --methods cosda --variant default --pairs "$pairs"
report images

#!/bin/sh
# Whole-network training on real pictures: EfficientNet-Lite0 at 96 pixels. About five hours on two cores.
. "$(dirname "$0")/common.sh"
pictures() {
  cosda bench "$OFFICE31" --encoder lite0 --size 96 --seeds 2 --workers "$WORKERS" --out "$OUT/pictures" --profile paper \
    --set adapt.measure=target --set adapt.validate=0 "$@"
}
# What matters most comes first. The pair amazon>dslr is the first stage of the chain.
chain="amazon>dslr>webcam"
pairs="amazon>webcam,dslr>webcam,webcam>dslr"
pictures --methods source,bn,cosda,aad --chains "$chain"
pictures --methods cosda --profile default --chains "$chain"
pictures --methods aad --carry interpolate=0.5 --chains "$chain"
pictures --methods nrc,shot,cosda+aad,cosda+nrc --chains "$chain"
pictures --methods source,bn,cosda,aad,nrc,shot,cosda+aad,cosda+nrc --pairs "$pairs"
pictures --methods cosda --profile default --pairs "$pairs"
report pictures

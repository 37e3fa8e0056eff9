#!/bin/sh
# The paper's network (ResNet-50, 224 pixels) on Office-31: 20 epochs, batches of 64, one seed. Some hours a pair on two cores,
# after an hour and a half for each source model. WEIGHTS names the ImageNet weights; the encoder names their layout.
#   WEIGHTS=resnet50_v1_imagenet.safetensors ENCODER=resnet50-v1 sh studies/resnet50.sh [pairs, such as "amazon>dslr"]
. "$(dirname "$0")/common.sh"
WEIGHTS=${WEIGHTS:-../shared/weights/resnet50_v1_imagenet.safetensors}
ENCODER=${ENCODER:-resnet50-v1}
CORES=${CORES:-2}
PRECISION=${PRECISION:-32}
resnet50() {
  cosda bench "$OFFICE31" --encoder "$ENCODER" --weights "$WEIGHTS" --seeds 1 --workers 1 --cores-per-run "$CORES" \
    --epochs 20 --precision "$PRECISION" --set adapt.measure=target --set source.shared_floor=true --out "$OUT/resnet50" "$@"
}
# What matters most comes first.
for pair in ${1:-"amazon>dslr" "amazon>webcam" "dslr>webcam" "webcam>dslr"}; do
  resnet50 --pairs "$pair" --methods source
  resnet50 --pairs "$pair" --methods cosda --variant authors
  resnet50 --pairs "$pair" --methods nrc,aad --variant paper
  resnet50 --pairs "$pair" --methods cosda --variant paper
  resnet50 --pairs "$pair" --methods aad --variant paper --carry bank
  resnet50 --pairs "$pair" --methods cosda+aad --variant authors
  resnet50 --pairs "$pair" --methods aad --variant paper --carry interpolate=0.5
  resnet50 --pairs "$pair" --methods cosda --variant default
done
report resnet50

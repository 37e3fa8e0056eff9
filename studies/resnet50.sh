#!/bin/sh
# The paper's network (ResNet-50, 224 pixels) on Office-31: 20 epochs, batches of 64, one seed. On two cores with bf16 half an
# hour for amazon's source model and one and a half to three hours for each pair from it; several times that with PRECISION=32.
# WEIGHTS names the ImageNet weights; the encoder names their layout.
#   WEIGHTS=resnet50_v1_imagenet.safetensors ENCODER=resnet50-v1 sh studies/resnet50.sh [pairs, such as "amazon>dslr"]
. "$(dirname "$0")/common.sh"
WEIGHTS=${WEIGHTS:-../shared/weights/resnet50_v1_imagenet.safetensors}
ENCODER=${ENCODER:-resnet50-v1}
PRECISION=${PRECISION:-bf16}
resnet50() {
  cosda bench "$OFFICE31" --encoder "$ENCODER" --weights "$WEIGHTS" --seeds 1 --workers "$WORKERS" --epochs 20 \
    --precision "$PRECISION" --compile --set adapt.measure=target --set source.shared_floor=true --out "$OUT/resnet50" "$@"
}
# What matters most comes first. A source model is trained by all cores, then each run has a core of its own.
for pair in ${1:-"amazon>dslr" "amazon>webcam" "dslr>webcam" "webcam>dslr"}; do
  resnet50 --pairs "$pair" --methods source --workers 1 --cores-per-run "$WORKERS"
  resnet50 --pairs "$pair" --methods cosda,cosda+aad --variant authors
  resnet50 --pairs "$pair" --methods cosda,nrc,aad --variant paper
  resnet50 --pairs "$pair" --methods aad --variant paper --carry bank,interpolate=0.5
  resnet50 --pairs "$pair" --methods cosda --variant default
done
# What decides CoSDA's numbers, on the smallest pair: statistics alone, the paper's mutual information, the authors' 40 epochs.
resnet50 --pairs "amazon>dslr" --methods bn
resnet50 --pairs "amazon>dslr" --methods cosda --variant authors --set method.information=1
resnet50 --pairs "amazon>dslr" --methods cosda --variant authors --epochs 40
report resnet50

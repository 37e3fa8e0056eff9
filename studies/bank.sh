#!/bin/sh
# The domain bank: adapt without forgetting, without a domain ID. About two hours on two cores.
. "$(dirname "$0")/common.sh"
embedded --methods aad,nrc --carry last,interpolate=0.5,bank
embedded --methods source,shot,cosda,cosda+aad --carry bank
embedded --methods aad --carry bank=8,bank=2
embedded --methods aad --carry bank --set adapt.begin=previous
embedded --methods aad --carry bank --set adapt.begin=base
digits --methods aad,nrc --carry last,interpolate=0.5,bank
digits --methods aad --carry bank --set adapt.begin=previous
features --methods aad,nrc --carry last,interpolate=0.5,bank
features --methods aad --carry bank --set adapt.begin=previous
images="--encoder lite0 --size 96 --seeds 2 --set adapt.validate=0"
whole() { cosda bench "$OFFICE31" $images --workers "$WORKERS" --out "$OUT/images" --variant paper --set adapt.measure=target "$@"; }
chain="amazon>dslr>webcam"
whole --methods aad,nrc --carry last,interpolate=0.5,bank --chains "$chain"
whole --methods aad --carry bank=8,bank=2 --chains "$chain"
whole --methods aad --carry bank --set adapt.begin=previous --chains "$chain"
# Twenty domains, one after the other.
[ -f "$OUT/twenty.npz" ] || python "$(dirname "$0")/twenty_domains.py" "$OUT/twenty.npz"
as_digits="--encoder small --size 32 --epochs 8 --set data.flip=false --set network.bottleneck=64 --set source.epochs=30
  --set source.lr=0.2 --set source.lr_end=0.004 --set source.encoder_rate=1 --set source.holdout=0"
twenty() { cosda bench "$OUT/twenty.npz" $as_digits --seeds 3 --workers "$WORKERS" --out "$OUT/twenty" --variant paper "$@"; }
all="print>noise>blur>contrast>red>turned>dark>salt>negative>moved>small>bright>green>sheared>blocks>shadow>blue>counter>grain>large"
twenty --methods aad --carry last,bank --chains "$all" --set adapt.measure=target
report embedded digits features images twenty

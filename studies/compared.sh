#!/bin/sh
# How much of the forgetting is in the method, how much in BatchNorm statistics and in the encoder's learning rate?
. "$(dirname "$0")/common.sh"
for statistics in own merged; do
  features --methods bn,shot,nrc,aad,dac,gsfda,cotta,cosda,cosda+nrc,cosda+aad --set adapt.statistics=$statistics
  digits --methods bn,shot,cosda --set adapt.statistics=$statistics
  for rate in 1 0.1; do
    digits --methods nrc,aad --set adapt.statistics=$statistics --set method.encoder_rate=$rate
  done
done
report

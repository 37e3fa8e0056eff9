#!/bin/sh
# How much of the forgetting is in the method, how much in BatchNorm statistics and in the encoder's learning rate?
# Each method as it is, then with the kind of statistics that is not its own choice.
. "$(dirname "$0")/common.sh"
features --methods bn,shot,nrc,aad,dac,gsfda,cotta,cosda,cosda+nrc,cosda+aad
features --methods bn,shot,nrc,aad,dac,gsfda --set adapt.statistics=merged
features --methods cotta,cosda,cosda+nrc,cosda+aad --set adapt.statistics=own
digits --methods bn,shot,shot++,dac,edgemix,gsfda,cotta,cosda,cosda+nrc,cosda+aad
digits --methods bn,shot,shot++,dac,edgemix,gsfda --set adapt.statistics=merged
digits --methods cotta,cosda,cosda+nrc,cosda+aad --set adapt.statistics=own
for rate in 1 0.1; do
  digits --methods nrc,aad --set method.encoder_rate=$rate
  digits --methods nrc,aad --set method.encoder_rate=$rate --set adapt.statistics=merged
done
report features digits

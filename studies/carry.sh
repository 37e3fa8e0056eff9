#!/bin/sh
# The carry rule: every method with every rule.
. "$(dirname "$0")/common.sh"
features --methods shot,nrc,aad,dac,gsfda,cotta,cosda,cosda+nrc,cosda+aad --carry last,interpolate=0.5,auto
digits --methods shot,nrc,aad,cosda,cosda+nrc,cosda+aad --carry last,interpolate=0.5,auto
features --methods shot,nrc,aad,cosda+aad --carry interpolate=0.25,interpolate=0.75,along=0.5
digits --methods shot,nrc,aad --carry interpolate=0.25,interpolate=0.75,along=0.5
report features digits

#!/bin/sh
# The carry rule: every method with every share; the mean along the way for those that gain by a share, and one that does not.
. "$(dirname "$0")/common.sh"
shares=last,interpolate=0.25,interpolate=0.5,interpolate=0.75,auto
features --methods shot,nrc,aad,dac,gsfda,cotta,cosda,cosda+nrc,cosda+aad --carry $shares
digits --methods shot,nrc,aad,cosda,cosda+nrc,cosda+aad --carry $shares
features --methods shot,nrc,aad,cosda+aad --carry along=0.5
digits --methods shot,nrc,aad --carry along=0.5
report features digits

#!/bin/sh
# The carry rule: every method with every rule.
. "$(dirname "$0")/common.sh"
for rule in last interpolate=0.5 auto; do
  features --methods shot,nrc,aad,dac,gsfda,cotta,cosda,cosda+nrc,cosda+aad --carry $rule
  digits --methods shot,nrc,aad,cosda,cosda+nrc,cosda+aad --carry $rule
done
for rule in interpolate=0.25 interpolate=0.75 along=0.5; do
  features --methods shot,nrc,aad,cosda+aad --carry $rule
  digits --methods shot,nrc,aad --carry $rule
done
report

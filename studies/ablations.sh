#!/bin/sh
# What each part of CoSDA is for.
. "$(dirname "$0")/common.sh"
for part in features digits; do
  $part ablations --methods cosda --ablate all
done
report ablations

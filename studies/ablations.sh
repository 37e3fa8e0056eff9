#!/bin/sh
# What each part of CoSDA is for.
. "$(dirname "$0")/common.sh"
for part in features digits; do
  $part --methods cosda --ablate all
done
report features digits

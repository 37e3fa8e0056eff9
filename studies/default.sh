#!/bin/sh
# Which CoSDA is the default? Algorithm 1, the authors' code, and each thing in which they differ by itself.
. "$(dirname "$0")/common.sh"
for part in features digits; do
  $part default --methods source,cosda
  $part default --methods cosda --profile authors
  $part default --methods cosda --set method.restart=true
  $part default --methods cosda --set "method.gate=[0.5,0.7]"
  $part default --methods cosda --set method.information_on=clean
  $part default --methods cosda --set "method.statistics_momentum=[0.95,0.99]"
  $part default --methods cosda --set method.teacher_statistics=global
done
features default --methods cosda --epochs 10
features default --methods cosda --epochs 40
features default --methods cosda --epochs 40 --set method.restart=true
digits default --methods cosda --epochs 16
digits default --methods cosda --epochs 16 --set method.restart=true
report default

# What the studies share. Each study is a list of `cosda bench` commands that go on where they were stopped, and a report.
#   WORKERS=2 SEEDS=5 OUT=out/studies OFFICE31=../shared/data/office31 DIGITS=../shared/data/digits.npz
set -eu
WORKERS=${WORKERS:-2}
SEEDS=${SEEDS:-5}
OUT=${OUT:-out/studies}
OFFICE31=${OFFICE31:-../shared/data/office31}
DIGITS=${DIGITS:-../shared/data/digits.npz}

# All studies of one kind of data share their source models.
folder() {
  mkdir -p "$OUT/sources-$2" "$OUT/$1/$2"
  ln -sfn "../../sources-$2" "$OUT/$1/$2/sources"
}

# Office-31 as features of a frozen EfficientNet-Lite0, all six chains. The six pairs are their first stages.
features() {
  study=$1; shift
  folder "$study" features
  cosda bench "$OFFICE31" --chains all --encoder lite0 --freeze-encoder --seeds "$SEEDS" --workers "$WORKERS" \
    --out "$OUT/$study/features" --set adapt.measure=target "$@"
}

# MNIST, USPS (2000 training pictures of each) and scikit-learn's digits, with a small network that is trained whole.
digits() {
  study=$1; shift
  folder "$study" digits
  [ -f "$OUT/digits.npz" ] || python "$(dirname "$0")/three_digits.py" "$DIGITS" "$OUT/digits.npz"
  cosda bench "$OUT/digits.npz" --chains "mnist>usps>hand,usps>mnist>hand" --seeds "$SEEDS" --workers "$WORKERS" \
    --out "$OUT/$study/digits" --set adapt.measure=target --set source.epochs=15 "$@"
}

report() {
  for part in features digits; do
    [ ! -d "$OUT/$1/$part" ] || cosda report "$OUT/$1/$part" -o "$OUT/$1-$part.md"
  done
}

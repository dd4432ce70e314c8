#!/usr/bin/env bash
# Builds and runs the examples that are packages of their own (candle, axum, bevy, cuda, wgpu) and has their traces read by the
# consumers. Where there is no GPU, the CUDA example runs on the simulated one; that of wgpu needs Vulkan, on the processor at
# least, and is passed over without.
#
#   scripts/run-examples.sh [NAME...]
#
# The cold builds take most of the time: about six minutes on two cores.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export CARGO_TARGET_DIR=$target/examples-of-their-own
traces=$CARGO_TARGET_DIR/traces
rm -rf "$traces"
mkdir -p "$traces"

# on_simulated_gpu COMMAND...: runs it where the loader finds the simulated GPU, which the tests build too.
on_simulated_gpu() {
  echo 'there is no GPU here: on the SIMULATED one, which proves nothing about a real GPU'
  cargo build --locked --target-dir "$target" --package sim-cuda-driver --package sim-cuda-cupti
  local folder=$CARGO_TARGET_DIR/simulated-gpu
  mkdir -p "$folder"
  ln -sf "$target/debug/deps/libsim_cuda.so" "$folder/libcuda.so.1"
  ln -sf "$target/debug/deps/libsim_cuda.so" "$folder/libcudart.so.12"
  ln -sf "$target/debug/deps/libsim_cupti.so" "$folder/libcupti.so.13"
  LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$@"
}

examples=("$@")
[[ $# -gt 0 ]] || examples=(candle axum bevy cuda wgpu)
written=()
for example in "${examples[@]}"; do
  start=$SECONDS
  if ! cargo build --release --locked --manifest-path "examples/$example/Cargo.toml"; then
    echo "hint: after a change of the root's dependencies, run 'cargo update -w' in examples/$example and commit its Cargo.lock" >&2
    exit 1
  fi
  echo "$example: built in $((SECONDS - start)) s"
  trace=$traces/$example.pt.trace.json.gz
  run=("$CARGO_TARGET_DIR/release/$example-example" "$trace")
  if [[ $example = cuda && ! -e /dev/nvidiactl ]]; then
    run=(on_simulated_gpu "${run[@]}")
  fi
  status=0
  "${run[@]}" </dev/null || status=$?
  if [[ $example = wgpu && $status -eq 3 ]]; then
    echo 'PASSED OVER: there is no Vulkan device with timestamps here'
    continue
  fi
  [[ $status -eq 0 ]] || exit "$status"
  written+=("$trace")
  if [[ $example = wgpu ]]; then
    # The other way to the GPU's clock, and names that all of HTA understands.
    trace=$traces/wgpu-brackets.pt.trace.json.gz
    "${run[0]}" "$trace" --brackets --hta </dev/null
    written+=("$trace")
  fi
done
[[ ${#written[@]} -gt 0 ]] || exit 0
bash scripts/consumers.sh "${written[@]}"

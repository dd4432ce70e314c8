#!/usr/bin/env bash
# Builds and runs the examples that are packages of their own (candle, axum, bevy, cuda, service, wgpu) and has their traces read by the
# consumers. The quickstart is linted alone: it has its own step in the gate. Where there is no GPU, the CUDA example runs on the simulated
# one; that of wgpu needs Vulkan, on the processor at least, and is passed over without.
#
#   scripts/run-examples.sh [NAME...]   builds and runs all of them, or those that are named
#   scripts/run-examples.sh --changed   lints and runs those that have changed since they last ran
#   scripts/run-examples.sh --check     checks that they compile
#
# An example has changed if its sources, its lock file, the library's public API (`sources api` of tests/architecture) or the library's
# dependencies have. Runs that succeed are recorded in examples/verified, which belongs into the commit. All cold builds take about
# ten minutes on two cores.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export CARGO_TARGET_DIR=$target/examples-of-their-own
traces=$CARGO_TARGET_DIR/traces
readonly verified=examples/verified
rm -rf "$traces"
mkdir -p "$traces"

# What the library's packages depend on, a line each.
dependencies() {
  cargo metadata --locked --no-deps --format-version 1 | python3 -c '
import json, sys
for package in json.load(sys.stdin)["packages"]:
    for used in package["dependencies"]:
        if package["publish"] is None and used["kind"] is None:
            print(package["name"], package["version"], *(used[key] for key in ("name", "req", "features", "optional", "target")))'
}

# fingerprint NAME: a hash of all that decides how the example builds and which API it sees.
fingerprint() {
  local folders=("examples/$1")
  [[ $1 != wgpu ]] || folders+=(integrations/wgpu)
  local sources api uses
  sources=$(git ls-files -z -- "${folders[@]}" | LC_ALL=C sort -z | xargs -0r sha256sum)
  api=$(CARGO_TARGET_DIR=$target cargo run --quiet --locked --package test-architecture api)
  uses=$(dependencies)
  # Without git there is no fingerprint, and nothing counts as verified.
  [[ -n $sources && -n $api && -n $uses ]] || return 1
  printf '%s\n' "$sources" "$api" "$uses" | sha256sum | cut -d' ' -f1
}

# has_changed NAME: whether it differs from what last ran.
has_changed() {
  local print
  print=$(fingerprint "$1") || return 0
  ! grep -qx "$1 $print" "$verified" 2>/dev/null
}

# record NAME: notes that the example, as it is, ran and was read by all consumers.
record() {
  local others print
  print=$(fingerprint "$1") || return 1
  others=$(grep -v "^$1 " "$verified" 2>/dev/null || true)
  printf '%s\n' ${others:+"$others"} "$1 $print" | sort >"$verified.new"
  mv "$verified.new" "$verified"
}

# on_simulated_gpu COMMAND...: runs it where the loader finds the simulated GPU, which the tests build too.
on_simulated_gpu() {
  echo 'there is no GPU here: on the SIMULATED one, which proves nothing about a real GPU'
  cargo build --locked --target-dir "$target" --package sim-cuda-driver --package sim-cuda-cupti \
    --package sim-cuda-nvml || return
  local folder=$CARGO_TARGET_DIR/simulated-gpu
  mkdir -p "$folder"
  ln -sf "$target/debug/deps/libsim_cuda.so" "$folder/libcuda.so.1"
  ln -sf "$target/debug/deps/libsim_cuda.so" "$folder/libcudart.so.12"
  ln -sf "$target/debug/deps/libsim_cupti.so" "$folder/libcupti.so.13"
  ln -sf "$target/debug/deps/libsim_nvml.so" "$folder/libnvidia-ml.so.1"
  LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$@"
}

# run_example NAME: builds and runs it, and has its traces read.
run_example() {
  local example=$1 start=$SECONDS status=0 written=()
  if [[ $example = quickstart ]]; then
    cargo clippy --locked --manifest-path examples/quickstart/Cargo.toml -- -D warnings || return
    record "$example"
    return
  fi
  if [[ $example = wgpu ]]; then
    # The integration has no lock file in git; the example's will do.
    cp examples/wgpu/Cargo.lock integrations/wgpu/Cargo.lock
    local package
    for package in integrations/wgpu examples/wgpu; do
      cargo clippy --manifest-path "$package/Cargo.toml" -- -D warnings || return
    done
  fi
  if ! cargo build --release --locked --manifest-path "examples/$example/Cargo.toml"; then
    echo "hint: after a change of the root's dependencies, run 'cargo update -w' in examples/$example and commit its Cargo.lock" >&2
    return 1
  fi
  echo "$example: built in $((SECONDS - start)) s"
  local trace=$traces/$example.pt.trace.json.gz
  local run=("$CARGO_TARGET_DIR/release/$example-example" "$trace")
  if [[ $example = cuda && ! -e /dev/nvidiactl ]]; then
    run=(on_simulated_gpu "${run[@]}")
  fi
  "${run[@]}" </dev/null || status=$?
  if [[ $example = wgpu && $status -eq 3 ]]; then
    echo 'PASSED OVER: there is no Vulkan device with timestamps here'
    return 0
  fi
  [[ $status -eq 0 ]] || return "$status"
  written+=("$trace")
  if [[ $example = service ]]; then
    # What it has dumped by itself. If the machine stalled, there is an earlier dump.
    written+=("${trace%.pt.trace.json.gz}"_*_slow-span-request.pt.trace.json.gz)
  fi
  if [[ $example = cuda && ${run[0]} = on_simulated_gpu ]]; then
    local unit
    for unit in kernel annotation; do
      trace=$traces/cuda-$unit-metrics.pt.trace.json.gz
      "${run[@]:0:2}" "$trace" "--$unit-metrics" sm__inst_executed.sum,sm__cycles_active.avg </dev/null || return
      written+=("$trace")
    done
  fi
  if [[ $example = wgpu ]]; then
    # The other way to the GPU's clock, and names that all of HTA understands.
    trace=$traces/wgpu-brackets.pt.trace.json.gz
    "${run[0]}" "$trace" --brackets --hta </dev/null
    written+=("$trace")
  fi
  bash scripts/consumers.sh "${written[@]}" || status=$?
  if [[ $status -eq 3 ]]; then
    echo "PASSED OVER: no consumers; $example is not recorded as verified"
    return 0
  fi
  [[ $status -eq 0 ]] || return "$status"
  record "$example"
}

mode=run
case ${1:-} in
--changed | --check)
  mode=${1#--}
  shift
  ;;
esac
examples=("$@")
[[ $# -gt 0 ]] || examples=(quickstart candle axum bevy cuda service wgpu)
for example in "${examples[@]}"; do
  if [[ $mode = changed ]] && ! has_changed "$example"; then
    echo "$example: has not changed since it last ran"
  elif [[ $mode = check ]]; then
    cargo check --quiet --locked --manifest-path "examples/$example/Cargo.toml"
  else
    run_example "$example"
  fi
done

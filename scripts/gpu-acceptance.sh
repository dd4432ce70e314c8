#!/usr/bin/env bash
# Proves the crate on a machine with an NVIDIA GPU, in one command.
#
#   scripts/gpu-acceptance.sh [TRACE]
#
# Builds examples/cuda and runs it: its checks, what recording costs, soaks that keep the newest records or move the oldest to disk,
# and a service that dumps the newest records when a request stalls.
# Then other tools read the trace (scripts/consumers.sh), and torch.profiler is asked about the same kernels
# (scripts/gpu-torch.py), where these are there.
# The exit status is 0 only if nothing failed. TRACE is where the trace goes; default target/cuda.pt.trace.json.gz.
#
#   KINETO_ACCEPTANCE_BINARY   the example, built elsewhere (`cargo build --release` in examples/cuda): for machines without
#                              cargo; its glibc must not be newer than the machine's
#   KINETO_CUPTI_PATH          the libcupti to use; `python`: the one in python3's site-packages. Default: found by the crate
#   KINETO_SOAK                for how many seconds kernels are launched while the newest records are kept (default 10), and at
#                              most 5 while the oldest are moved to disk; also for how long a service runs; 0 skips all three
#   KINETO_TORCH               0: no comparison with torch.profiler
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
trace=${1:-"$root/target/cuda.pt.trace.json.gz"}
mkdir -p "$(dirname "$trace")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# in_python NAME: the newest library of that name in python3's site-packages; nothing where there is none.
in_python() {
  command -v python3 >/dev/null || return 0
  python3 - "$1" <<'PYTHON'
import glob, re, site, sys, sysconfig

folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages(), site.getusersitepackages()}
found = [path for folder in folders for path in glob.glob(f"{folder}/nvidia/*/lib/{sys.argv[1]}.so.[0-9]*")]
print(max(found, key=lambda path: [int(number) for number in re.findall(r"\d+", path.rsplit(".so.")[-1])], default=""))
PYTHON
}

binary=${KINETO_ACCEPTANCE_BINARY:-}
compare=${KINETO_TORCH:-1}
soak=${KINETO_SOAK:-10}
# The crate would not know these, and say so.
unset KINETO_ACCEPTANCE_BINARY KINETO_SOAK KINETO_TORCH
if [[ -z $binary ]]; then
  target=${CARGO_TARGET_DIR:-$root/target}/examples-of-their-own
  CARGO_TARGET_DIR=$target cargo build --release --locked --manifest-path "$root/examples/cuda/Cargo.toml"
  binary=$target/release/cuda-example
fi

if [[ ${KINETO_CUPTI_PATH:-} = python ]]; then
  KINETO_CUPTI_PATH=$(in_python libcupti)
  [[ -n $KINETO_CUPTI_PATH ]] || { echo "python3 has no libcupti: pip install nvidia-cuda-cupti" >&2; exit 1; }
  export KINETO_CUPTI_PATH
fi
# The example looks for the runtime by the name that CUDA 12's has; the functions that it calls are the same in 13.
runtime=$(in_python libcudart)
if [[ -n $runtime ]]; then
  ln -s "$runtime" "$work/libcudart.so.12"
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$work
fi

if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader || true
fi
echo "== checks and overhead: $binary"
"$binary" "$trace" --overhead || failed=1

echo "== the newest records of $soak seconds"
if [[ $soak = 0 ]]; then
  echo "PASSED OVER: KINETO_SOAK=0"
else
  "$binary" "$work/soak.pt.trace.json.gz" --soak "$soak" || failed=1
  # Reading a second's million rows back takes ten seconds.
  spilled=$((soak < 5 ? soak : 5))
  echo "== $spilled seconds, moved to disk"
  "$binary" "$work/spill" --spill "$spilled" || failed=1
  echo "== a service for $soak seconds, with one stalled request"
  "$binary" "$work/stall.pt.trace.json.gz" --stall "$soak" || failed=1
fi

if [[ -f $trace ]]; then
  echo "== the trace in other tools"
  status=0
  bash "$root/scripts/consumers.sh" "$trace" || status=$?
  if [[ $status -eq 3 ]]; then
    echo 'PASSED OVER: no consumers'
  elif [[ $status -ne 0 ]]; then
    failed=1
  fi
fi

echo "== torch.profiler on the same kernels"
if [[ $compare = 0 ]]; then
  echo "PASSED OVER: KINETO_TORCH=0"
elif ! python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  echo "PASSED OVER: python3 has no torch that sees a GPU"
else
  "$binary" --ptx >"$work/kernels.ptx"
  python3 "$root/scripts/gpu-torch.py" "$trace" "$work/kernels.ptx" || failed=1
fi
exit "$failed"

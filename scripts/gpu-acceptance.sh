#!/usr/bin/env bash
# Proves the crate on a machine with an NVIDIA GPU and cargo, in one command.
#
#   scripts/gpu-acceptance.sh [TRACE [OPTION...]]
#
# Builds and packs the acceptance (scripts/gpu-pack.sh), runs all of its parts but the ten minutes of memory growth
# (scripts/gpu-run.sh has parts, environment and options, such as `--skip torch`), and has other tools read the trace
# (scripts/consumers.sh), which need packages that a machine without cargo does not get. Logs and summary are in
# target/gpu-pack/results.
# The exit status is 0 only if nothing failed. TRACE is where the trace goes; default target/cuda.pt.trace.json.gz.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
pack=$root/target/gpu-pack
trace=$root/target/cuda.pt.trace.json.gz
if [[ $# -gt 0 ]]; then
  trace=$1
  shift
fi
failed=0

bash "$root/scripts/gpu-pack.sh" "$pack"
# This call measures anew, whatever an earlier one has found.
rm -rf "$pack/results"
bash "$pack/run.sh" --minutes 60 --total 60 --skip 'memory-*' "$@" || failed=1
cat "$pack/results/summary.txt" || failed=1

if [[ -f $pack/results/checks-found.pt.trace.json.gz ]]; then
  mkdir -p "$(dirname "$trace")"
  cp "$pack/results/checks-found.pt.trace.json.gz" "$trace"
  echo "== the trace in other tools"
  status=0
  bash "$root/scripts/consumers.sh" "$trace" || status=$?
  if [[ $status -eq 3 ]]; then
    echo 'PASSED OVER: no consumers'
  elif [[ $status -ne 0 ]]; then
    failed=1
  fi
fi
exit "$failed"

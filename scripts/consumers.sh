#!/usr/bin/env bash
# Has other people's tools read traces: HolisticTraceAnalysis, TensorBoard, Perfetto, chrome://tracing, and a JSON schema.
#
#   scripts/consumers.sh TRACE...
#
# The scripts that run them are in tests/tools/consumers. The tools are installed once, into KINETO_CONSUMERS_VENV or else into
# the user's cache folder, and kept there. `scripts/consumers.sh --install` does that alone. Where the packages cannot be
# fetched, the exit status is 3; where there is no Chromium and none can be installed, chrome://tracing is passed over.
#
# If APP.pftrace lies next to APP.pt.trace.json, Perfetto must find the same in both: each slice with its exact times, each arrow.
# Every trace must be read by all of these tools, none skipped and nothing unexpected found; no two slices of it may overlap; and it
# must be valid by the schema. One finding is expected: where a graph's launch has an arrow to each of its nodes, as in Kineto's
# own traces, chrome://tracing draws the first and warns of the others.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
consumers=$root/tests/tools/consumers
parallel=$(nproc)

if [[ $# -eq 0 ]]; then
  echo "usage: $0 --install | TRACE..." >&2
  exit 2
fi

# Installs the tools, unless this very setup.sh has succeeded before.
version=$(sha256sum "$consumers/setup.sh" | cut -c1-16)
venv=${KINETO_CONSUMERS_VENV:-"${XDG_CACHE_HOME:-$HOME/.cache}/tracing-kineto/consumers-$version"}
if [[ ! -e $venv/complete-$version ]]; then
  echo "installing the consumers (about a minute)"
  mkdir -p "$(dirname "$venv")"
  if ! bash "$consumers/setup.sh" "$venv" </dev/null; then
    echo "the consumers were not installed: their Python packages cannot be fetched here"
    exit 3
  fi
  touch "$venv/complete-$version"
fi

# Outside of what is kept: a browser comes and goes with the machine.
without=()
if ! command -v chromium >/dev/null && command -v apt-get >/dev/null && [[ $(id -u) = 0 ]]; then
  echo 'installing Chromium (about a minute)'
  { dpkg --configure -a && apt-get update -qq -o Acquire::Retries=3 &&
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends -o Acquire::Retries=3 \
      chromium fonts-dejavu-core; } >/dev/null || true
fi
if ! command -v chromium >/dev/null; then
  echo 'PASSED OVER: there is no Chromium here, so chrome://tracing reads no trace'
  without=(--without chrome)
fi
[[ $1 != --install ]] || exit 0

# judge REPORT STATUS [--without CONSUMER]: prints two lines on the trace; fails, with the findings, unless all is well.
judge() {
  "$venv/bin/python" - "$@" <<'PYTHON'
import json
import sys

path, code = sys.argv[1], int(sys.argv[2])
report = json.load(open(path))
wanted = {"hta", "tensorboard", "perfetto", "chrome"} - set(sys.argv[4:])
result, figures = report.get("result", {}), report.get("expected", {})
more_ends = figures.get("flow_ends", 0) - figures.get("flow_starts", 0)
chrome = report.get("consumers", {}).get("chrome", {})
warned = chrome.get("notes") == [f"import warning flow_slice_ordering_error: {more_ends}"] and not chrome.get("errors")
if result.get("chrome") == "FAIL" and warned:
    result["chrome"] = "PASS"
    print(f"  chrome://tracing does not draw {more_ends} arrows of graphs")
    if wanted == {name for name, status in result.items() if status == "PASS"} and not figures["flows_back_in_time"]:
        code = 0
print("  " + ", ".join(f"{name} {status}" for name, status in result.items()))
keys = ("events", "slices", "steps", "flows_paired", "overlapping_slices")
print("  " + ", ".join(f"{figures.get(key)} {key}" for key in keys))
faults = [f"{name}: {result.get(name, 'not run')}" for name in sorted(wanted) if result.get(name) != "PASS"]
if figures.get("overlapping_slices") != 0:
    faults.append(f"overlapping_slices: {figures.get('overlapping_slices')}")
if code:
    faults.append(f"check_trace.py ended with {code}")
if faults:
    print("  FAULT: " + "; ".join(faults))
    print(json.dumps(report, indent=1))
    sys.exit(1)
PYTHON
}

# read_trace TRACE: has all tools read it.
read_trace() {
  local trace=$1 report code=0 failed=0
  echo "$trace"
  report=$reports/$(basename "$trace").report.json
  "$venv/bin/python" "$consumers/check_trace.py" --strict "${without[@]}" "$trace" >"$report" </dev/null || code=$?
  judge "$report" "$code" "${without[@]}" || failed=1
  "$venv/bin/python" "$consumers/validate_schema.py" --ours "$trace" || failed=1
  local native=${trace%.pt.trace.json*}.pftrace
  if [[ -e $native ]]; then
    echo "$native"
    "$venv/bin/python" "$consumers/check_pftrace.py" "$trace" "$native" || failed=1
  fi
  return "$failed"
}

reports=$root/target/consumers
mkdir -p "$reports"
failed=0
# As many at a time as there are processors; what is printed of each stays together.
traces=("$@")
for ((at = 0; at < ${#traces[@]}; at += parallel)); do
  readers=()
  for trace in "${traces[@]:at:parallel}"; do
    read_trace "$trace" >"$reports/$(basename "$trace").log" 2>&1 &
    readers+=("$!")
  done
  for reader in "${!readers[@]}"; do
    wait "${readers[reader]}" || failed=1
    cat "$reports/$(basename "${traces[at + reader]}").log"
  done
done
exit "$failed"

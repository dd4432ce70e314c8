#!/usr/bin/env bash
# Runs the acceptance on a machine with an NVIDIA GPU, part by part, from a folder that scripts/gpu-pack.sh has made.
#
#   ./run.sh [OPTION...]
#
#   --minutes N     starts no part that may not end within N minutes (default 9); call it again for the remaining parts
#   --total N       starts no part once all calls together would exceed N minutes (default 25)
#   --results DIR   folder of all output (default: results, next to this script); nothing is written outside of it
#   --only PART     runs these parts only; a pattern such as 'checks-*', may be repeated
#   --skip PART     leaves these parts out; likewise
#   --again PART    forgets the results of these parts and runs them again; likewise
#   --list          prints the parts: expected seconds, limit in seconds, outcome so far
#
# Each part is a process with a time limit and a log, DIR/PART.log. Its outcome is in DIR/PART.status; a part that has one is not
# run again. DIR/summary.txt and DIR/summary.json have all figures; where there is tar, DIR/all.tar.gz holds everything.
# Traces above 4 MiB are deleted.
#
#   KINETO_CUPTI_PATH     the libcupti of the parts named `found`; `python`: that of python3's site-packages. Default: searched for
#   KINETO_PACK_SECONDS   length of the soaks (default 10); the parts named `memory` take 15 times as long
#
# Exit status: 0 all parts passed or were skipped with a reason, 1 a part failed, 2 wrong use, 3 parts remain, 130 interrupted.
set -euo pipefail

pack=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly pack example=$pack/cuda-example trace_limit=$((4 << 20))
# The example's exit status is never this one.
readonly skipped=77
readonly metrics=sm__cycles_active.avg.pct_of_peak_sustained_elapsed,gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed
# The first is a sum that is exact. Every chip since TU102 has both, in one pass.
readonly range_metrics=sm__inst_executed.sum,sm__cycles_active.avg

# ---- Parts: each runs in a process of its own, in $work, with errors fatal.

# Prints the parts in order: name, expected seconds, limit in seconds.
parts() {
  local s=$seconds spill
  spill=$((s < 5 ? s : 5))
  echo "machine 20 60"
  printf '%s 15 90\n' busy-stop-5000 busy-stop-300
  printf '%s 20 100\n' checks-found checks-packed checks-all-fields checks-exclusive checks-hardware-times
  printf '%s 10 60\n' empty-found empty-packed empty-all-fields empty-exclusive
  printf '%s 55 180\n' overhead-1 overhead-2 overhead-3
  echo "soak $((s + 25)) $((s + 240))"
  # Reading the rows of one second back takes ten seconds.
  echo "spill $((12 * spill + 10)) $((40 * spill + 60))"
  echo "stall $((s + 15)) $((s + 120))"
  echo "injection 10 60"
  echo "counters 15 60"
  printf '%s 20 90\n' kernel-metrics annotation-metrics
  echo "torch 40 120"
  printf "%s $((15 * s + 20)) $((15 * s + 240))\n" memory-1 memory-2 memory-3 memory-4
}

skip() {
  echo "SKIP  $1"
  exit "$skipped"
}

# find_in_python NAME: prints the newest library of that name in python3's site-packages, if any.
find_in_python() {
  command -v python3 >/dev/null || return 0
  python3 - "$1" <<'PYTHON'
import glob, re, site, sys, sysconfig

folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages(), site.getusersitepackages()}
found = [path for folder in folders for path in glob.glob(f"{folder}/nvidia/*/lib/{sys.argv[1]}.so.[0-9]*")]
print(max(found, key=lambda path: [int(number) for number in re.findall(r"\d+", path.rsplit(".so.")[-1])], default=""))
PYTHON
}

packed_cupti() {
  local path
  for path in "$pack"/lib/libcupti.so.*; do
    [[ ! -e $path ]] || echo "$path"
  done
}

# Prints the library that the crate finds, or that of python3; fails without one.
found_cupti() {
  local report path=${KINETO_CUPTI_PATH:-}
  if [[ -z $path ]]; then
    report=$("$pack/kineto" doctor --json) || true
    if [[ $report =~ \"library\":\"([^\"]+)\",\"name\":\"cupti\" ]]; then
      echo "${BASH_REMATCH[1]}"
      return 0
    fi
  fi
  [[ -n $path ]] || path=$(find_in_python libcupti)
  [[ -n $path ]] && echo "$path"
}

# use_cupti found|packed|newest: selects the library for what follows; fails without one.
use_cupti() {
  local path
  case $1 in
  found) path=$(found_cupti) || return 1 ;;
  packed) path=$(packed_cupti) ;;
  newest) path=$(packed_cupti); [[ -n $path ]] || path=$(found_cupti) || return 1 ;;
  esac
  [[ -n $path ]] || return 1
  export KINETO_CUPTI_PATH=$path
}

# Selects the packed library or else the found one; ends the part without one.
require_cupti() {
  use_cupti newest || { echo "FAIL  no libcupti was found or packed: run scripts/gpu-pack.sh with --cupti"; exit 1; }
}

# configure NAME: selects library and settings of one of the configurations; fails where its library is missing.
configure() {
  case $1 in
  found) use_cupti found ;;
  packed) use_cupti packed ;;
  all-fields) use_cupti newest && export KINETO_CUPTI_ALL_FIELDS=1 ;;
  exclusive) use_cupti newest && export KINETO_CUPTI_EXCLUSIVE=1 ;;
  # A GPU without them refuses, with a note in the report.
  hardware-times) use_cupti newest && export KINETO_CUPTI_HARDWARE_TIMES=1 ;;
  esac
}

# Skips a part whose library is missing, unless no library can be had at all.
configure_or_skip() {
  if ! configure "$1"; then
    require_cupti
    skip "no libcupti is $1"
  fi
  echo "libcupti: $KINETO_CUPTI_PATH"
}

# The example opens the runtime by the name of CUDA 12's; the functions that it calls are the same in 13.
link_runtime() {
  local path runtime
  runtime=$(find_in_python libcudart)
  for path in /usr/local/cuda*/targets/*/lib/libcudart.so.1[23]; do
    [[ -n $runtime || ! -e $path ]] || runtime=$path
  done
  [[ -n $runtime ]] || return 0
  mkdir -p "$work/lib"
  ln -sfn "$runtime" "$work/lib/libcudart.so.12"
  # Last, so that a library of the machine comes first.
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$work/lib
}

# expect_kernels TRACE: passes if the trace has all kernels of the program.
expect_kernels() {
  local summary
  summary=$("$pack/kineto" summary --json "$1")
  if [[ $summary =~ \"count\":([0-9]+),[^}]*\"name\":\"vecadd\" && ${BASH_REMATCH[1]} = 22 ]]; then
    echo "PASS  kernels                            22 of 22"
  else
    echo "FAIL  kernels                            ${BASH_REMATCH[1]:-0} of 22"
    return 1
  fi
}

run_machine() {
  local path report
  uname -a
  id
  if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version,compute_cap,pci.bus_id,mig.mode.current --format=csv || true
    nvidia-smi || true
  else
    echo "nvidia-smi: not found"
  fi
  for path in /proc/driver/nvidia/version /proc/driver/nvidia/params; do
    # RmProfilingAdminOnly: 1 restricts counters to root.
    [[ ! -r $path ]] || { echo "-- $path"; cat "$path"; }
  done
  ls -l /dev/nvidia* /usr/local/cuda*/targets/*/lib/lib{cupti,nvperf_host,cudart}.so.* "$pack"/lib 2>/dev/null || true
  use_cupti found && echo "found libcupti: $KINETO_CUPTI_PATH" || echo "no libcupti was found"
  use_cupti newest || true
  "$pack/kineto" doctor --start || true
  report=$("$pack/kineto" doctor --start --json) || true
  report=${report#*\"name\":\"cupti\"}
  [[ ${report%%\"name\":*} == *'"verdict":"ready"'* ]] || { echo "FAIL  kineto doctor: CUPTI is not ready"; return 1; }
  echo "PASS  kineto doctor: CUPTI is ready"
}

run_checks() {
  configure_or_skip "$1"
  link_runtime
  "$example" "$work/checks-$1.pt.trace.json.gz"
}

run_empty() {
  configure_or_skip "$1"
  "$example" --empty-first "$work/empty-$1.pt.trace.json.gz"
  expect_kernels "$work/empty-$1.pt.trace.json.gz"
}

# One round of all ways and configurations: later rounds show how much the machine varies.
run_overhead() {
  local way name figures
  (require_cupti) || return 1
  for way in none idle spans; do
    # Not inside of `echo`, which would hide a failure.
    figures=$("$example" --measure "$way")
    echo "MEASURE $way $figures"
  done
  for name in found packed all-fields exclusive; do
    (
      configure "$name" || { echo "no libcupti is $name"; exit 0; }
      figures=$("$example" --measure cupti)
      echo "MEASURE cupti-$name $figures"
      [[ $figures =~ \"records\":[1-9] ]] || { echo "FAIL  $name: no records"; exit 1; }
    )
  done
  echo "PASS  overhead of a launch is measured"
}

run_soak() {
  require_cupti
  "$example" "$work/$part.pt.trace.json.gz" --soak "$1"
}

run_spill() {
  require_cupti
  "$example" "$work/spill" --spill "$((seconds < 5 ? seconds : 5))"
}

run_stall() {
  require_cupti
  "$example" "$work/stall.pt.trace.json.gz" --stall "$seconds"
}

run_injection() {
  command -v python3 >/dev/null || skip "no python3: the example contains the layer, so another program must be injected"
  require_cupti
  "$example" --ptx >"$work/kernels.ptx"
  CUDA_INJECTION64_PATH=$pack/lib/libtracing_kineto_capi.so KINETO_ACTIVITIES_LOG_FILE=$work/injection.pt.trace.json.gz \
    python3 "$pack/gpu-inject.py" "$work/kernels.ptx"
  # The process id is part of the name.
  expect_kernels "$work"/injection_*.pt.trace.json.gz
}

# run_busy_stop MILLISECONDS: stops of a busy GPU with this `flush_timeout`.
run_busy_stop() {
  require_cupti
  "$example" "$work/busy-stop-$1.pt.trace.json.gz" --busy-stop "$1"
}

# Selects a libcupti whose libraries of metrics are there.
use_counter_libraries() {
  local helper
  if [[ -e $pack/lib/libnvperf_host.so.gz ]]; then
    command -v gzip >/dev/null || skip "no gzip to unpack libnvperf_host.so"
    # CUPTI's helper libraries are searched for next to it.
    mkdir -p "$work/lib"
    for helper in "$pack"/lib/libnvperf_*.so.gz; do gzip -dc "$helper" >"$work/lib/$(basename "$helper" .gz)"; done
    use_cupti packed
    cp "$KINETO_CUPTI_PATH" "$work/lib/"
    KINETO_CUPTI_PATH=$work/lib/${KINETO_CUPTI_PATH##*/}
  else
    use_cupti found || require_cupti
  fi
}

run_counters() {
  use_counter_libraries
  "$example" "$work/counters.pt.trace.json.gz" --counters "$metrics"
}

# run_metrics kernel|annotation
run_metrics() {
  use_counter_libraries
  "$example" "$work/$1-metrics.pt.trace.json.gz" "--$1-metrics" "$range_metrics"
}

run_torch() {
  local trace
  python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null || skip "python3 has no torch that uses a GPU"
  for trace in "$results"/checks-{found,packed}.pt.trace.json.gz; do
    [[ -e $trace ]] || continue
    "$example" --ptx >"$work/kernels.ptx"
    python3 "$pack/gpu-torch.py" "$trace" "$work/kernels.ptx"
    return
  done
  skip "no trace of the parts checks-found and checks-packed"
}

# Runs the selected part in its own process.
run_part() {
  # The crate would report variables that it does not know.
  unset KINETO_PACK_SECONDS
  if [[ ${KINETO_CUPTI_PATH:-} = python ]]; then
    KINETO_CUPTI_PATH=$(find_in_python libcupti)
    [[ -n $KINETO_CUPTI_PATH ]] || { echo "FAIL  python3 has no libcupti: pip install nvidia-cuda-cupti"; exit 1; }
  fi
  # The driver's and torch's caches would otherwise be in the home folder.
  export TMPDIR=$work CUDA_CACHE_PATH=$work/cuda-cache XDG_CACHE_HOME=$work/cache
  cd "$work"
  case $part in
  machine | spill | stall | injection | counters | torch) "run_$part" ;;
  *-metrics) run_metrics "${part%-metrics}" ;;
  busy-stop-*) run_busy_stop "${part#busy-stop-}" ;;
  checks-*) run_checks "${part#checks-}" ;;
  empty-*) run_empty "${part#empty-}" ;;
  overhead-*) run_overhead ;;
  soak) run_soak "$seconds" ;;
  memory-*) run_soak $((15 * seconds)) ;;
  esac
}

# ---- The calls

fail_usage() {
  echo "$0: $1; see the head of the script" >&2
  exit 2
}

# matches NAME PATTERN...: whether one of the patterns matches.
matches() {
  local name=$1 pattern
  shift
  for pattern in "$@"; do
    # shellcheck disable=SC2053
    [[ $name != $pattern ]] || return 0
  done
  return 1
}

# read_status NAME: sets outcome, status and took; fails if the part has not finished.
read_status() {
  outcome=- status=- took=-
  [[ -s $results/$1.status ]] && read -r outcome status took <"$results/$1.status"
}

# await LIMIT: waits for the running part. A process that hangs in the driver survives SIGKILL, so the wait has a limit, too.
await() {
  local until=$((SECONDS + $1 + 15))
  while kill -0 "$running" 2>/dev/null; do
    ((SECONDS < until)) || return 137
    sleep 0.2
  done
  wait "$running"
}

interrupt() {
  if [[ -n ${running:-} ]]; then
    # timeout leads the group of all processes of the part.
    kill -KILL -- "-$running" 2>/dev/null || kill "$running" 2>/dev/null || true
  fi
  echo "interrupted: the part ${part:-} will run again" >&2
  exit 130
}

# keep_traces: moves small traces of the part to the results.
keep_traces() {
  local file size
  for file in "$results/scratch/$part"/*.json*; do
    [[ -f $file ]] || continue
    size=$(stat -c %s "$file")
    if ((size <= trace_limit)); then
      mv "$file" "$results/"
    else
      echo "deleted: ${file##*/}, $((size >> 10)) KiB" >>"$results/$part.log"
    fi
  done
  rm -rf "$results/scratch"
}

# run NAME LIMIT OWN_LIMIT: runs a part and keeps its outcome, unless the end of the call cut it.
run() {
  part=$1
  local limit=$2 own=$3 start=$SECONDS code=0 outcome=failed took
  rm -rf "$results/scratch" "$results/$part"[._]*
  mkdir -p "$results/scratch/$part"
  # SIGKILL reaches the whole group; after SIGTERM, a process that ignores it would disturb the next part.
  timeout --signal=KILL "$limit" bash "$pack/run.sh" --part "$part" "$seconds" "$results" >"$results/$part.log" 2>&1 </dev/null &
  running=$!
  await "$limit" 2>/dev/null || code=$?
  running=
  keep_traces
  took=$((SECONDS - start))
  case $code in
  0) outcome=passed ;;
  "$skipped") outcome=skipped ;;
  137) ((took < limit)) || outcome=timeout ;;
  esac
  if [[ $outcome = timeout ]] && ((limit < own && ran > 0)); then
    printf '%-18s cut by the end of this call after %s s\n' "$part" "$took"
    return
  fi
  echo "$outcome $code $took" >"$results/$part.status.new"
  mv "$results/$part.status.new" "$results/$part.status"
  report "$part" "$outcome" "$took"
}

# report NAME OUTCOME SECONDS: prints the line of a part, with the reason if it did not pass.
report() {
  local why='' line
  if [[ $2 != passed && -r $results/$1.log ]]; then
    while IFS= read -r line; do
      case $line in 'FAIL '* | 'SKIP '*) why=${why:-${line:6}} ;; esac
    done <"$results/$1.log"
    [[ -n $why || $2 = timeout ]] || why="see $1.log"
  fi
  printf '%-18s %-8s %5s s  %s\n' "$1" "$2" "$3" "$why"
}

# json TEXT: prints it as a JSON string.
json() {
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"}
  printf '"%s"' "${text//[[:cntrl:]]/ }"
}

# Prints the outcomes, checks and measurements of all parts as JSON.
summarize_json() {
  local name line first='' comma outcome status took measured=''
  printf '{"schema": 1, "seconds": %s, "parts": [' "$seconds"
  for name in "${names[@]}"; do
    read_status "$name" || continue
    printf '%s\n {"name": "%s", "outcome": "%s", "status": %s, "seconds": %s, "checks": [' "$first" "$name" "$outcome" "$status" "$took"
    first=, comma=
    while IFS= read -r line; do
      case $line in
      'PASS '* | 'FAIL '* | '---- '* | 'SKIP '*) printf '%s\n  %s' "$comma" "$(json "$line")"; comma=, ;;
      'MEASURE '*)
        read -r _ way line <<<"$line"
        measured+="${measured:+,}"$'\n'" {\"part\": \"$name\", \"way\": \"$way\", \"figures\": $line}"
        ;;
      esac
    done <"$results/$name.log"
    printf ']}'
  done
  printf '],\n"overhead": [%s]}\n' "$measured"
}

# median_of WAY KEY: prints the median of a figure over the rounds.
median_of() {
  local log line values=()
  for log in "$results"/overhead-*.log; do
    while IFS= read -r line; do
      [[ $line != "MEASURE $1 "* || ! $line =~ \"$2\":([0-9.e+-]+) ]] || values+=("${BASH_REMATCH[1]}")
    done <"$log"
  done
  ((${#values[@]})) || return 0
  printf '%s\n' "${values[@]}" | sort -g | head -n $((${#values[@]} / 2 + 1)) | tail -n 1
}

# Prints the outcomes, the overhead and the lines of soaks on memory as text.
summarize_text() {
  local name line way key value
  for name in "${names[@]}"; do
    if read_status "$name"; then
      report "$name" "$outcome" "$took"
    else
      report "$name" remains -
    fi
  done
  if compgen -G "$results/overhead-*.log" >/dev/null; then
    printf '\n%-18s %10s %14s %8s %10s  medians of the rounds: ns, and %% of a core\n' overhead launch launch_in_span span service
    for way in none idle spans cupti-{found,packed,all-fields,exclusive}; do
      printf '%-18s' "$way"
      for key in launch:11 launch_in_span:15 span:9 service:11; do
        value=$(median_of "$way" "${key%:*}")
        if [[ -n $value ]]; then LC_ALL=C printf "%${key#*:}.1f" "$value"; else printf "%${key#*:}s" -; fi
      done
      printf '\n'
    done
  fi
  printf '\n'
  for name in "${names[@]}"; do
    [[ -s $results/$name.log ]] || continue
    while IFS= read -r line; do
      case $line in
      'FAIL '* | *'memory is bounded'* | *'checks passed'*) printf '%-18s %s\n' "$name" "$line" ;;
      esac
    done <"$results/$name.log"
  done
}

seconds=${KINETO_PACK_SECONDS:-10}
if [[ ${1:-} = --part ]]; then
  part=$2 seconds=$3 results=$4
  work=$results/scratch/$part
  run_part
  exit
fi

minutes=9 total=25 results=$pack/results list=0
only=() left_out=() again=()
while [[ $# -gt 0 ]]; do
  case $1 in
  --list) list=1 ;;
  --minutes | --total | --results | --only | --skip | --again)
    [[ $# -ge 2 ]] || fail_usage "$1 needs a value"
    case $1 in
    --minutes) minutes=$2 ;;
    --total) total=$2 ;;
    --results) results=$2 ;;
    --only) only+=("$2") ;;
    --skip) left_out+=("$2") ;;
    --again) again+=("$2") ;;
    esac
    shift
    ;;
  *) fail_usage "unknown option $1" ;;
  esac
  shift
done
for value in "$minutes" "$total" "$seconds"; do
  [[ $value =~ ^[1-9][0-9]{0,3}$ ]] || fail_usage "$value is no whole number from 1 to 9999"
done
mkdir -p "$results"
results=$(cd "$results" && pwd)

mapfile -t lines < <(parts)
names=("${lines[@]%% *}")
for pattern in "${only[@]}" "${left_out[@]}" "${again[@]}"; do
  found=0
  for name in "${names[@]}"; do ! matches "$name" "$pattern" || found=1; done
  ((found)) || fail_usage "no part is named $pattern"
done

# Results of other binaries must not be mixed with these.
this=$(cat "$pack"/pack.sha256)
if [[ ! -e $results/pack.sha256 ]]; then
  echo "$this" >"$results/pack.sha256"
elif [[ $(<"$results/pack.sha256") != "$this" ]]; then
  echo "$results has results of another pack: name another folder with --results" >&2
  exit 2
fi

selected=()
for line in "${lines[@]}"; do
  name=${line%% *}
  ((${#only[@]} == 0)) || matches "$name" "${only[@]}" || continue
  ((${#left_out[@]} == 0)) || ! matches "$name" "${left_out[@]}" || continue
  selected+=("$line")
done

if ((list)); then
  for line in "${selected[@]}"; do
    read -r name need limit <<<"$line"
    read_status "$name" || true
    printf '%-18s %4s s, at most %4s s  %s\n' "$name" "$need" "$limit" "$outcome"
  done
  exit 0
fi
for name in "${names[@]}"; do
  ((${#again[@]} == 0)) || ! matches "$name" "${again[@]}" || rm -f "$results/$name.status"
done

trap interrupt INT TERM HUP
ran=0
for line in "${selected[@]}"; do
  read -r name need limit <<<"$line"
  if read_status "$name"; then
    report "$name" "$outcome" "$took"
    continue
  fi
  spent=0
  for other in "${names[@]}"; do ! read_status "$other" || spent=$((spent + took)); done
  if ((spent + need > total * 60)); then
    echo "$name would exceed $total minutes in all (--total)"
    continue
  fi
  left=$((minutes * 60 - SECONDS))
  # The first part always starts, or no call would ever run it.
  ((need <= left || ran == 0)) || continue
  run "$name" $((limit < left ? limit : left)) "$limit"
  ran=$((ran + 1))
done

code=0
for line in "${selected[@]}"; do
  if ! read_status "${line%% *}"; then
    code=3
    break
  fi
  [[ $outcome = passed || $outcome = skipped ]] || code=1
done
summarize_json >"$results/summary.json"
summarize_text >"$results/summary.txt"
if command -v tar >/dev/null; then
  (
    cd "$results"
    shopt -s nullglob
    tar -czf all.tar.gz summary.* ./*.status ./*.log ./*.json.gz
  ) || echo "all.tar.gz is incomplete" >&2
fi
if [[ $code -eq 3 ]]; then echo "parts remain: run this again"; fi
exit "$code"

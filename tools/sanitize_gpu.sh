#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The GPU program's small cases under the tools of compute-sanitizer, each after it has found the error that is planted for it. Each access is
# slowed down, so waits get a deadline that no healthy one meets; the cases whose point is a deadline set their own. Logs go to $OUT, or into
# the folder.
# Usage: tools/sanitize_gpu.sh FOLDER [TOOL...]      CASES: which cases, small by default
set -eu
folder=$1
shift
[ $# -gt 0 ] || set -- memcheck racecheck synccheck initcheck
out=${OUT:-$folder}
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

sanitizer=$(command -v compute-sanitizer || true)
for root in "${CUDA_HOME:-}" /usr/local/cuda; do
  [ -n "$sanitizer" ] || [ ! -x "$root/bin/compute-sanitizer" ] || sanitizer=$root/bin/compute-sanitizer
done
if [ -z "$sanitizer" ]; then
  echo "skipped: compute-sanitizer is not on this machine (PATH, CUDA_HOME/bin)"
  echo "0 passed, 0 failed, $# skipped"
  exit 0
fi

# run TOOL LOG CASE...: the program under a tool; the exit status is found_status where it found something.
found_status=9
run() {
  run_tool=$1 run_log=$2
  shift 2
  timeout --signal=KILL 240 "$sanitizer" --tool "$run_tool" --error-exitcode $found_status "$folder/gpu_test" "$@" >"$run_log" 2>&1
}
passed=0 failed=0
count() { # NAME STATUS EXPECTED LOG
  if [ "$2" -eq "$3" ]; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "FAIL $1: exit status $2, expected $3 (log: $4)"
  fi
}
for tool in "$@"; do
  planted=$out/sanitize-$tool-planted.log log=$out/sanitize-$tool.log
  begin=$(date +%s)
  status=0
  run "$tool" "$planted" "planted.$tool" || status=$?
  count "$tool, the planted error" "$status" $found_status "$planted"
  status=0
  # shellcheck disable=SC2086
  run "$tool" "$log" ${CASES:-small} deadline=100 -lineinfo || status=$?
  count "$tool" "$status" 0 "$log"
  grep -hE "ERROR SUMMARY|RACECHECK SUMMARY" "$planted" | sed "s/^/$tool, planted: /"
  grep -E "ERROR SUMMARY|RACECHECK SUMMARY|passed, " "$log" | sed "s/^/$tool: /"
  echo "$tool: $(($(date +%s) - begin)) s (log: $log)"
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]

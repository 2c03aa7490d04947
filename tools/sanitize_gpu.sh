#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The GPU program's small cases under the tools of compute-sanitizer. Each access is slowed down, so waits get a deadline that no healthy
# one meets; the cases whose point is a deadline set their own. Logs go to $OUT, or into the folder.
# Usage: tools/sanitize_gpu.sh FOLDER [TOOL...]
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
passed=0 failed=0
for tool in "$@"; do
  log=$out/sanitize-$tool.log
  begin=$(date +%s)
  status=0
  timeout --signal=KILL 240 "$sanitizer" --tool "$tool" --error-exitcode 9 "$folder/gpu_test" ${CASES:-small} deadline=100 -lineinfo \
    >"$log" 2>&1 || status=$?
  grep -E "ERROR SUMMARY|RACECHECK SUMMARY|passed, " "$log" | sed "s/^/$tool: /"
  echo "$tool: exit status $status, $(($(date +%s) - begin)) s (log: $log)"
  if [ "$status" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the GPU program, which may have been built elsewhere and carried here. A kernel that spins never returns, so it
# has a time limit. The whole log goes to $OUT (or beside the program), the end of it to the screen.
# Usage: tools/run_gpu.sh PROGRAM SECONDS NAME [ARGUMENT...]
set -eu
program=$1 limit=$2 name=$3
shift 3
folder=$(dirname "$program")
log=${OUT:-$folder}/$name.log

# Nothing of ours makes multicast objects; what we load must not either.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
# The libraries that were carried with it.
export LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
status=0
timeout --signal=KILL "$limit" stdbuf -oL "$program" "$@" >"$log" 2>&1 || status=$?
grep -v '^pass ' "$log" | tail -n 60
case $status in
  0) ;;
  77) status=0 ;; # it said why it skips
  137) echo "$name: still running after $limit s (log: $log)" ;;
  *) echo "$name: exit status $status (log: $log)" ;;
esac
exit $status

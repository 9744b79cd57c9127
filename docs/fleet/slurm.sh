#!/usr/bin/env bash
# One plan on eight GPUs of a Slurm cluster, each task with a share and a file of its own:
#
#     sbatch docs/fleet/slurm.sh --preset cs336-2025
#     python -m runner import results --db all.duckdb       # when they are done, or at any time before
#
# A task that is cancelled, preempted or out of time goes on where it stopped: submit the same command again.
#SBATCH --job-name=stepscope
#SBATCH --array=1-8
#SBATCH --gpus-per-task=1
#SBATCH --time=02:00:00
#SBATCH --signal=TERM@60
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:?}"
# Slurm may count from any number: a share is counted from 1.
number=$((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN + 1))
mkdir -p results
exec "${PYTHON:-python}" -m runner sweep --shard "$number/$SLURM_ARRAY_TASK_COUNT" \
  --label "share $number of $SLURM_ARRAY_TASK_COUNT" --db "results/share-$number.duckdb" "$@"

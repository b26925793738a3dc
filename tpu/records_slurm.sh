#!/usr/bin/env bash
# Makes pre-training records in shards, as a Slurm array job of 32 tasks:
#
#     sbatch --array=0-31 tpu/records_slurm.sh --input_file='text/*.txt' \
#         --output_file=records/train_128.tfrecord --vocab_file=vocab.txt --num_shards=512
#
# Submit it from the checkout, with the flags of create_pretraining_data.py. Text and output must be
# in a folder that all nodes see. Submit the same line again after a failure: complete shards are
# kept. docs/records.md explains shards.
#SBATCH --job-name=bert-records
#SBATCH --cpus-per-task=1
#SBATCH --mem=2G
#SBATCH --time=12:00:00
#SBATCH --requeue
#SBATCH --output=records-%A-%a.log
set -euo pipefail

if [ -z "${SLURM_ARRAY_TASK_ID:-}" ] || [ "${SLURM_ARRAY_TASK_MIN:-}" != 0 ]; then
  echo "Submit this script as an array that begins at 0: sbatch --array=0-31 $0 FLAGS" >&2
  exit 1
fi
# Slurm runs a copy of the script, so the script's path does not lead to the checkout.
cd "$SLURM_SUBMIT_DIR"
exec python create_pretraining_data.py "$@" \
  --num_workers="$SLURM_ARRAY_TASK_COUNT" --worker_index="$SLURM_ARRAY_TASK_ID"

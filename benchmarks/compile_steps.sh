#!/usr/bin/env bash
# Compiles the steps of docs/measurements/tpu.md for TPUs, one after another, which takes hours:
#
#   bash benchmarks/compile_steps.sh output/steps
#
# Each step's report is kept as a file in that folder. Started again, it goes on where it stopped.
# Needs the extra `compile`, and 15 GB of memory for BERT-Large. New figures go into tpu/memory.txt.
set -euo pipefail
folder=$(realpath -m "${1:?Give the folder for the reports}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "$folder"

# step NAME FLAGS...
step() {
  local report=$folder/$1.txt
  shift
  [ -e "$report" ] && return
  printf '%s: %s\n' "$(date +%H:%M)" "$report"
  # 2: the step does not fit, which the report says.
  "${PYTHON:-python}" -m tools.compile_for_tpu "$@" >"$report.unfinished" || [ $? = 2 ]
  mv "$report.unfinished" "$report"
}

# model NAME CONFIG TOPOLOGY LENGTH:BATCH:PREDICTIONS PARTS FLAGS...
model() {
  local length=${4%%:*}
  step "$1_${3/:/_}_${length}_in_$5" --topology="$3" --phases="$length:1000:${4#*:}" \
    --bert_config_file="flags/models/$2/bert_config.json" --gradient_accumulation_steps="$5" \
    "${@:6}"
}

base() { model base uncased_L-12_H-768_A-12 "$@"; }
large() { model large uncased_L-24_H-1024_A-16 "$@"; }

for generation in v6e v5e; do
  base $generation:2x4 128:256:20 1
  base $generation:2x4 512:256:77 1
  model base_packed uncased_L-12_H-768_A-12 $generation:2x4 512:64:77 1 --max_sequences_per_pack=12
  large $generation:2x4 128:256:20 1
  large $generation:2x4 512:256:77 4
  model large_packed uncased_L-24_H-1024_A-16 $generation:2x4 512:64:77 1 \
    --max_sequences_per_pack=12
  for size in small base; do
    step electra_${size}_$generation --topology=$generation:2x4 \
      --flagfile=flags/pretraining/electra_$size.flags
  done
done
base v6e:1x1 512:32:77 1
base v3:2x2 128:256:20 1
base v3:2x2 512:256:77 1
large v3:2x2 128:256:20 1
large v3:2x2 512:256:77 4
large v2:2x2 128:256:20 1
model six uncased_L-6_H-768_A-12 v5e:2x4 128:256:20 1
model roberta roberta_base v5e:2x4 128:256:20 1 --objective=mlm
step albert_v5e --topology=v5e:2x4 --phases=128:1000:256:20 \
  --bert_config_file=flags/models/albert_base_v2/albert_config.json
base v5e:4x8 512:256:77 1
base v4:2x2x4 512:256:77 1
base tpu7x:2x2x2 512:256:77 1
large v6e:2x4 128:256:20 4
large v6e:2x4 512:256:77 1
large v5e:2x4 512:256:77 2
large v6e:8x8 128:256:20 4
large v6e:8x8 512:256:77 1
large v6e:8x8 512:32768:77 32 --optimizer=lamb

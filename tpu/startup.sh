#!/usr/bin/env bash
# Each machine of a TPU slice runs this script as root at every boot. The script fetches the job and
# compares it with the digests of the submitted files, and copies the log to the bucket every minute.
# An ordinary user, who cannot become root, installs the job's commit and runs the program until it
# is done. At the end the first machine writes a result to the bucket and deletes its own request,
# which deletes all machines. tpu/submit.sh passes the script and its settings as metadata. On a new
# machine the program continues from its last checkpoint.
set -euo pipefail

WORK=${BERT_WORK:-/opt/bert} # tests set BERT_WORK
export HOME=${HOME:-/root}   # startup scripts may run without HOME
export PATH=$PATH:/snap/bin  # where Ubuntu has gcloud
mkdir -p "$WORK"
cd "$WORK"
log=$WORK/$(date -u +%Y-%m-%dT%H-%M-%SZ).log
exec >>"$log" 2>&1

metadata() {
  curl --fail --silent --show-error --retry 5 --header 'Metadata-Flavor: Google' \
    "http://metadata.google.internal/computeMetadata/v1/$1"
}

folder=$(metadata instance/attributes/bert-folder)
name=$(metadata instance/attributes/bert-name)
project=$(metadata instance/attributes/bert-project)
zone=$(metadata instance/attributes/bert-zone)
# As JAX reads it: https://github.com/jax-ml/jax/blob/main/jax/_src/clusters/cloud_tpu_cluster.py
worker=$(metadata instance/attributes/agent-worker-number || echo 0)
commit=$(metadata instance/attributes/bert-commit)
date=$(metadata instance/attributes/bert-date)
source_sha256=$(metadata instance/attributes/bert-source-sha256)
flags_sha256=$(metadata instance/attributes/bert-flags-sha256)

say() {
  printf '%s startup.sh: %s\n' "$(date -u +%H:%M:%S)" "$*"
}

retry() {
  local attempt
  for attempt in 1 2 3 4 5; do
    if "$@"; then return 0; fi
    say "attempt $attempt failed: $*"
    sleep 20
  done
  return 1
}

logs=$folder/logs
[ "$worker" = 0 ] || logs=$folder/logs_of_workers/$worker
# The lock keeps an older copy from overwriting a newer one.
copy_log() {
  flock log.lock gcloud storage cp "$log" "$logs/" >/dev/null 2>&1 || true
}

delete_machine() {
  [ "$worker" = 0 ] || return 0
  retry gcloud compute tpus queued-resources delete "$name" --project="$project" --zone="$zone" \
    --force --async --quiet || say "this machine still runs and costs money: delete it by hand"
}

# finish RESULT...: writes the result, which ends the job for tpu/watch.sh, and deletes the machine.
# Any machine may write that the job failed, and only the first that it is done: it writes the
# checkpoints and may end last.
finish() {
  say "$*"
  copy_log
  case $worker:$1 in 0:* | *:failed*) ;; *) exit 0 ;; esac
  printf '%s\n' "$*" >result
  # If this fails, a new machine finds nothing left to do, or fails again.
  retry gcloud storage cp result "$folder/result" || true
  delete_machine
  exit 0
}

now() {
  date -u +%Y-%m-%dT%H:%M:%SZ
}

# leave_if_ended: deletes this machine if the job has a result, perhaps by another machine.
leave_if_ended() {
  gcloud storage cat "$folder/result" 2>/dev/null || return 0
  say "the job has already ended; this machine is not needed"
  delete_machine
  exit 0
}

leave_if_ended

(while sleep 60; do copy_log; done) &
logger=$!
trap 'kill "$logger"; copy_log' EXIT

# The images have Python 3.10, and Keras needs 3.11. uv, a single program, installs its own Python,
# which it compares with digests that uv contains. The wheel and its digest are from PyPI:
# https://pypi.org/project/uv/0.13.9/#files
UV=https://files.pythonhosted.org/packages/3d/aa
UV=$UV/26d64642d808de4a652579ef950d7cd2d37f080a8babf9c67c6b75fc4c3f
UV=$UV/uv-0.13.9-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl
UV_SHA256=d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19

fetch() {
  gcloud storage cp "$folder/source.tar.gz" "$folder/job.flags" . || return
  curl --fail --silent --show-error "$UV" >uv.whl
}

# check FILE DIGEST: ends the job if the file is not the expected one.
check() {
  printf '%s  %s\n' "$2" "$1" | sha256sum --check --status ||
    finish "failed $(now): $1 is not the expected file (its SHA-256 is not $2); nothing \
was unpacked. Look who can write to the bucket, then submit the job again"
}

say "fetching commit $commit"
retry fetch || finish "failed $(now): the job or uv could not be fetched; see the log"
check source.tar.gz "$source_sha256"
check job.flags "$flags_sha256"
check uv.whl "$UV_SHA256"

# The job's user owns only the folder `job` and the chips. Its processes cannot gain rights, for
# example by sudo.
make_user() {
  local device
  id -u bert-job >/dev/null 2>&1 ||
    useradd --system --user-group --home-dir "$WORK/job" bert-job || return
  mkdir -p job && chown bert-job:bert-job job || return
  chmod a+rx "$WORK" && chmod a+r source.tar.gz job.flags uv.whl || return
  for device in /dev/accel* /dev/vfio/*; do
    [ ! -e "$device" ] || chown bert-job "$device" || return
  done
}

make_user || finish "failed $(now): the job's user could not be created; see the log"
ulimit -l unlimited || say "the limit on locked memory cannot be raised" # the chips' driver locks memory
as_job=(setpriv --reuid=bert-job --regid=bert-job --init-groups --no-new-privs
  env HOME="$WORK/job")

# No package is newer than the commit, so that the next machine gets the same ones.
install() (
  cd job || return
  uv=uv/uv-0.13.9.data/scripts/uv
  "${as_job[@]}" mkdir -p source || return
  "${as_job[@]}" tar -xzf ../source.tar.gz -C source || return
  "${as_job[@]}" python3 -m zipfile --extract ../uv.whl uv || return
  "${as_job[@]}" chmod +x "$uv" || return
  [ -x venv/bin/python ] || "${as_job[@]}" "$uv" venv --quiet --python 3.11 venv || return
  "${as_job[@]}" "$uv" pip install --python venv/bin/python --exclude-newer "$date" './source[pjrt]'
)

say "installing"
retry install || finish "failed $(now): the installation failed; see the log"

# Runs the program and returns its status. Compute Engine sets `preempted` about 30 seconds before
# it takes a spot machine (https://cloud.google.com/compute/docs/instances/create-use-spot). In that
# time the program ends its step and saves.
run_program() {
  local program warner status=0
  (
    cd job/source
    exec "${as_job[@]}" ../venv/bin/python run_pretraining.py --flagfile=../../job.flags
  ) &
  program=$!
  (
    until [ "$(metadata instance/preempted 2>/dev/null)" = TRUE ]; do sleep 5; done
    say "the machine is being preempted"
    kill -TERM "$program"
  ) &
  warner=$!
  wait "$program" || status=$?
  kill "$warner" 2>/dev/null || true
  return "$status"
}

crashes=0
while :; do
  say "running"
  status=0
  run_program || status=$?
  say "the program ended with status $status"
  case $status in
    0) finish "done $(now)" ;;
    # Wrong flags, records or files, or a loss that is not finite (65): a retry would fail too.
    1 | 65) finish "failed $(now): run_pretraining.py ended with status $status; see the log" ;;
    75 | 143)
      # The program was stopped: it saved (75), or had not started yet (143). If the machine still
      # exists after two minutes, the program runs again.
      copy_log
      sleep 120
      ;;
    *)
      crashes=$((crashes + 1))
      [ "$crashes" -lt 3 ] || finish "failed $(now): the third crash, with status $status"
      copy_log
      sleep 20
      ;;
  esac
  leave_if_ended
done

#!/usr/bin/env bash
# tpu/submit.sh JOB_FILE [--yes]: estimates the cost of a job, uploads the current commit and the
# flags to the bucket, and requests the machine. If you submit a job again, a waiting or running job
# does not change, a failed job continues from its last checkpoint, a finished job stays as it is.
# --yes skips the question. DRY_RUN=1 prints every command and executes none.
set -euo pipefail
# shellcheck source=tpu/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

case "$#:${2:-}" in
  1:) confirmed=no ;;
  2:--yes) confirmed=yes ;;
  *) die "usage: tpu/submit.sh JOB_FILE [--yes]; received: $*" ;;
esac
job_file=$1
load_job "$job_file"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A flagfile for the estimate and for the machine.
for flag in "${FLAGS[@]}"; do
  case $flag in
    *$'\n'*) die "FLAGS of $job_file must be one line each; it has $(printf '%q' "${flag:0:60}")" ;;
    --output_dir* | --tpu* | --use_tpu* | --coordinator*)
      die "FLAGS of $job_file must not have $flag: --output_dir, --tpu=pjrt and --coordinator are \
added here" ;;
    --flagfile=*)
      [ -f "$ROOT/${flag#*=}" ] ||
        die "FLAGS of $job_file has $flag, but there is no such file in $ROOT"
      ask git -C "$ROOT" ls-files --error-unmatch "${flag#*=}" >/dev/null ||
        die "commit ${flag#*=} first: the machine runs the current commit"
      ;;
    --*) ;;
    *) die "FLAGS of $job_file must be flags, --name=value; it has $flag" ;;
  esac
  printf '%s\n' "$flag"
done >"$work/job.flags"
printf '%s\n' --tpu=pjrt "--output_dir=$FOLDER/output" >>"$work/job.flags"
[ "$HOSTS" = 1 ] || printf '%s\n' --coordinator=auto >>"$work/job.flags"

changed=$(ask git -C "$ROOT" status --porcelain --untracked-files=no)
[ -z "$changed" ] || die "commit or stash these changes first: the machine runs the current commit.
$changed"

result=$(job_object result)
case $result in
  done*)
    say "$NAME is done; nothing to do ($result)"
    say "its checkpoints are in $FOLDER/output; a new run needs another NAME"
    exit 0
    ;;
  failed*) say "result of the last attempt: $result" ;;
esac
# Two machines must not write to the same folder.
zone=$(job_object zone)
if [ -n "$zone" ] && [ "$zone" != "$ZONE" ]; then
  must_match zone "$ZONE_PATTERN" "a zone like us-central1-a in $FOLDER/zone"
  state=$(ZONE=$zone request_state)
  [ "$state" = ABSENT ] || die "$NAME was submitted in $zone before and is $state there. To move \
it, first run tpu/delete.sh with ZONE=$zone"
fi
state=$(request_state)
case "$result $state" in
  # If the machine of a failed attempt still exists, it is deleted below.
  failed* | *ABSENT | *SUSPENDING | *SUSPENDED | *FAILED | *DELETING | *PREEMPTED) ;;
  *)
    say "$NAME was submitted before and is $state; nothing to do"
    exit 0
    ;;
esac

spot_flag=--spot
[ "$SPOT" = yes ] || spot_flag=--nospot
(cd "$ROOT" && TF_CPP_MIN_LOG_LEVEL=2 python -m tools.estimate_cost \
  --accelerator="$ACCELERATOR" "$spot_flag" --flagfile="$work/job.flags") ||
  die "nothing was created: see the message above. The estimate reads FLAGS like run_pretraining.py \
and needs this project installed (pip install -e \".[cpu]\")"

if [ "$confirmed" = no ] && ! dry_run; then
  read -r -p "Request $ACCELERATOR in $ZONE as $NAME? [y/N] " answer || answer=
  case $answer in
    y | Y | yes) ;;
    *) die "nothing was created: answer y, or add --yes" ;;
  esac
fi

# sha256 FILE: prints the file's digest. macOS has only shasum.
sha256() {
  local line
  line=$(if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi)
  printf '%s' "${line%% *}"
}

# note_upload: notes what is uploaded, for create_request. The machine installs no package that is
# newer than the commit.
note_upload() {
  local commit date source flags
  commit=$(git -C "$ROOT" rev-parse HEAD)
  date=$(TZ=UTC git -C "$ROOT" log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd)
  source=$(sha256 "$work/source.tar.gz")
  flags=$(sha256 "$work/job.flags")
  printf 'bert-commit=%s,bert-date=%s,bert-source-sha256=%s,bert-flags-sha256=%s\n' \
    "$commit" "$date" "$source" "$flags" >"$SUBMITTED"
}

[ "$state" = ABSENT ] || delete_and_wait
run git -C "$ROOT" archive --format=tar.gz --output="$work/source.tar.gz" HEAD
dry_run || note_upload
read_submitted
printf '%s\n' "$ZONE" >"$work/zone"
run gcloud storage cp "$work/source.tar.gz" "$work/job.flags" "$work/zone" "$FOLDER/"
case $result in failed*) run gcloud storage rm "$FOLDER/result" ;; esac
create_request
if dry_run; then exit 0; fi

say "requested $ACCELERATOR in $ZONE; next: tpu/watch.sh $job_file"
say "the job's files are in $FOLDER: logs/, output/, and result when the job has ended"

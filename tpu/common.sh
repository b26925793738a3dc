# shellcheck shell=bash
# Functions shared by the scripts in this folder, which source it. Works with macOS's bash 3.2.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Commands are printed to descriptor 3, so that they stay visible if a command's output is captured.
exec 3>&1

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

say() {
  printf '%s  %s\n' "$(date -u +%H:%M:%S)" "$*"
}

dry_run() {
  [ "${DRY_RUN:-}" = 1 ]
}

print_command() {
  printf '+' >&3
  printf ' %q' "$@" >&3
  printf '\n' >&3
}

# run COMMAND...: prints and executes a command that changes something; DRY_RUN=1 only prints it.
run() {
  print_command "$@"
  dry_run || "$@"
}

# ask COMMAND...: executes a command that only reads. DRY_RUN=1 prints the command instead, so that
# its output is empty.
ask() {
  if dry_run; then print_command "$@"; else "$@"; fi
}

# must_match VARIABLE PATTERN RULE: ends the script unless the whole value matches the pattern.
must_match() {
  local LC_ALL=C value=${!1} pattern="^($2)\$"
  [[ $value =~ $pattern ]] || die "$1 must be $3; received $(printf '%q' "${value:0:60}")"
}

ZONE_PATTERN='[a-z]+-[a-z]+[0-9]+-[a-z0-9]+'

# check_values: checks the values that reach a command or the machine's metadata, where a comma
# would add a setting. The rules are Google's:
#   https://cloud.google.com/compute/docs/naming-resources
#   https://cloud.google.com/resource-manager/docs/creating-managing-projects
#   https://cloud.google.com/iam/docs/service-accounts-create
#   https://cloud.google.com/storage/docs/buckets#naming
check_values() {
  local project='[a-z][-a-z0-9]{4,28}[a-z0-9]'
  must_match NAME '[a-z]([-a-z0-9]{0,61}[a-z0-9])?' "lower-case letters, digits and hyphens, \
beginning with a letter and not ending with a hyphen, at most 63"
  must_match PROJECT "$project" "a project's ID: 6 to 30 lower-case letters, digits and hyphens, \
beginning with a letter and not ending with a hyphen"
  must_match ZONE "$ZONE_PATTERN" "a zone like us-central1-a"
  must_match BUCKET 'gs://[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9]' "gs:// and a bucket's name, without \
a folder"
  must_match SERVICE_ACCOUNT "$project@$project(\.[-.a-z0-9]+)?\.iam\.gserviceaccount\.com" \
    "the address of a service account that you made, NAME@PROJECT.iam.gserviceaccount.com"
  must_match SPOT 'yes|no' "yes or no"
}

# load_job FILE: reads and checks a job file. Sets its variables and
#   FOLDER            the job's folder in the bucket
#   SUBMITTED         the file beside the job file in which submit.sh notes what it uploaded
#   ACCELERATOR_TYPE  RUNTIME_VERSION  HOSTS: from tpu/accelerators.txt
load_job() {
  local file=$1 variable
  case $file in */*) ;; *) file=./$file ;; esac # without a slash bash would search PATH for it
  [ -f "$file" ] || die "there is no job file $1; copy tpu/job.env.example and edit the copy"
  # Values come from the file only, never from the environment.
  unset NAME PROJECT ZONE ACCELERATOR SPOT BUCKET SERVICE_ACCOUNT FLAGS
  # shellcheck source=tpu/job.env.example
  . "$file"
  for variable in NAME PROJECT ZONE ACCELERATOR SPOT BUCKET SERVICE_ACCOUNT FLAGS; do
    [ -n "${!variable:-}" ] || die "$1 must set $variable; tpu/job.env.example explains it"
  done
  check_values
  FOLDER=$BUCKET/$NAME
  # shellcheck disable=SC2034 # read by the scripts
  SUBMITTED=$file.submitted

  local row known
  row=$(awk -v name="$ACCELERATOR" '$1 == name' "$ROOT/tpu/accelerators.txt")
  if [ -z "$row" ]; then
    known=$(awk '!/^#/ { printf "%s ", $1 }' "$ROOT/tpu/accelerators.txt")
    die "ACCELERATOR must be one of ${known% } (tpu/accelerators.txt); received \
$(printf '%q' "${ACCELERATOR:0:60}")"
  fi
  # shellcheck disable=SC2034 # the scripts read HOSTS and the other variables
  read -r _ ACCELERATOR_TYPE RUNTIME_VERSION HOSTS _ <<<"$row"
  must_match ACCELERATOR_TYPE '[a-z0-9]+-[0-9]+' "like v5litepod-8 in tpu/accelerators.txt"
  must_match RUNTIME_VERSION '[a-z0-9][-.a-z0-9]*' "like v2-alpha-tpuv5 in tpu/accelerators.txt"
  must_match HOSTS '[1-9][0-9]*' "a number of machines in tpu/accelerators.txt"

  dry_run || command -v gcloud >/dev/null ||
    die "gcloud is not installed: https://cloud.google.com/sdk/docs/install (not needed with \
DRY_RUN=1)"
}

# printable: copies text that others can write, such as a log in the bucket, without the characters
# that a terminal obeys. A carriage return becomes a line break.
printable() {
  LC_ALL=C awk '{
    gsub(/\033\[[0-9;:?<=>]*[ -\/]*[@-~]/, "")
    gsub(/\033[]P^_X][^\007\033]*(\007|\033\\)/, "")
    gsub(/\r+$/, "")
    gsub(/\r+/, "\n")
    gsub(/[\001-\010\013\014\016-\037\177]/, "")
    gsub(/\302[\200-\237]/, "")
    print
  }'
}

# if_any COMMAND...: prints what a command reads from the bucket, or nothing if the objects do not
# exist. Fails, with the command's message, if the bucket cannot be read.
if_any() {
  local errors status=0
  { errors=$(ask "$@" 2>&1 >&4) || status=$?; } 4>&1
  # Both of the Cloud SDK's messages for a missing object contain these words.
  case $errors in *'matched no objects'*) return 0 ;; esac
  [ -z "$errors" ] || printf '%s\n' "$errors" | printable >&2
  return "$status"
}

# job_object NAME: prints an object in the job's folder, or nothing if the object does not exist.
# Fails if the bucket cannot be read. The machine writes `result` when the job ends, `done ...` or
# `failed ...`. `zone` is the zone in which the job was last submitted.
job_object() {
  if_any gcloud storage cat "$FOLDER/$1" | printable
}

# request_state: prints the state of the queued resource, PREEMPTED if its machine was preempted, or
# ABSENT if it does not exist. Fails if gcloud fails. It lists the requests, because `describe` also
# fails for a missing request.
request_state() {
  local state machine
  state=$(ask gcloud compute tpus queued-resources list --project="$PROJECT" --zone="$ZONE" \
    --filter="name~\"/$NAME\$\"" --format='value(state.state)') || return
  if [ "$state" = ACTIVE ]; then
    # After a preemption the request becomes SUSPENDED, but not at once.
    machine=$(ask gcloud compute tpus tpu-vm list --project="$PROJECT" --zone="$ZONE" \
      --filter="name~\"/$NAME\$\"" --format='value(state)') || return
    case $machine in PREEMPTED | TERMINATED) state=PREEMPTED ;; esac
  fi
  printf '%s\n' "${state:-ABSENT}"
}

# read_submitted: sets UPLOADED to the note of submit.sh, a part of the machine's metadata. The note
# is beside the job file, not in the bucket: write access to the bucket must not decide what runs.
read_submitted() {
  local digest='[0-9a-f]{64}'
  UPLOADED=bert-commit=COMMIT
  if dry_run; then return; fi
  [ -f "$SUBMITTED" ] || die "there is no $SUBMITTED, which tpu/submit.sh writes: run this where \
the job was submitted, copy that file here, or submit the job again (it continues)"
  UPLOADED=$(cat "$SUBMITTED")
  must_match UPLOADED "bert-commit=[0-9a-f]{40,64},bert-date=[-0-9T:]+Z,bert-source-sha256=$digest\
,bert-flags-sha256=$digest" "the line that tpu/submit.sh wrote into $SUBMITTED"
}

# create_request: requests the slice. Each of its machines runs tpu/startup.sh, which reads the job
# from the bucket and compares it with the digests in UPLOADED. The scopes are for the two services
# that the script calls.
create_request() {
  local spot=() scopes=https://www.googleapis.com/auth
  local settings="bert-folder=$FOLDER,bert-name=$NAME,bert-project=$PROJECT"
  settings+=",bert-zone=$ZONE,$UPLOADED"
  if [ "$SPOT" = yes ]; then spot=(--spot); fi
  run gcloud compute tpus queued-resources create "$NAME" --node-id="$NAME" \
    --project="$PROJECT" --zone="$ZONE" \
    --accelerator-type="$ACCELERATOR_TYPE" --runtime-version="$RUNTIME_VERSION" \
    ${spot[@]+"${spot[@]}"} \
    --service-account="$SERVICE_ACCOUNT" \
    --scopes="$scopes/cloud.tpu,$scopes/devstorage.read_write" \
    --metadata="$settings" --metadata-from-file="startup-script=$ROOT/tpu/startup.sh" --quiet
}

# delete_request: deletes the request and its machine.
delete_request() {
  run gcloud compute tpus queued-resources delete "$NAME" --project="$PROJECT" --zone="$ZONE" \
    --force --quiet
}

# delete_and_wait: deletes the request, if it exists, and waits until it is gone: about half an hour.
# A request may keep its state for a while, and deleting it twice does no harm.
MOST_LOOKS=35
delete_and_wait() {
  local state looks=0 pause=5
  while :; do
    state=$(request_state) || die "the state of $NAME in $ZONE cannot be read: see the message \
above. The request and its machine may still exist; run this again"
    if dry_run; then
      delete_request
      return
    fi
    case $state in
      ABSENT) return 0 ;;
      DELETING | SUSPENDING) ;;
      *) delete_request || die "$NAME in $ZONE, which is $state, cannot be deleted: see the message \
above. Its machine may still cost money" ;;
    esac
    looks=$((looks + 1))
    [ "$looks" -lt "$MOST_LOOKS" ] || die "gave up: $NAME in $ZONE is still $state after $looks \
looks. Its machine may still cost money; run this again, or look at \
https://console.cloud.google.com/compute/tpus?project=$PROJECT"
    [ "$looks" = 1 ] || sleep "$pause" # most requests are gone at once
    pause=$((pause < 30 ? pause * 2 : 60))
  done
}

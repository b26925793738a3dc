#!/usr/bin/env bash
# tpu/watch.sh JOB_FILE [HOURS]: watches a submitted job until its result is in the bucket, and
# requests a new machine after a preemption. Exits with status 0 if the job is done, 1 if it cannot
# continue or if all requests of HOURS (24 unless given) failed. Stopping this script does not stop
# the job; start the script again to continue watching.
set -euo pipefail
# shellcheck source=tpu/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

case $# in 1 | 2) ;; *) die "usage: tpu/watch.sh JOB_FILE [HOURS]; received: $*" ;; esac
HOURS=${2:-24}
must_match HOURS '[1-9][0-9]{0,3}' "a whole number of hours"
load_job "$1"
read_submitted

# After each request that failed in a row the script waits twice as long, up to 16 minutes: for hours
# there may be no capacity. A request that waits for it has not failed.
failures=0 delay=60 waited=0
count_failure() {
  failures=$((failures + 1)) pause=$delay waited=$((waited + delay))
  [ "$waited" -lt $((HOURS * 3600)) ] || die "gave up: all $failures requests of $HOURS hours \
failed; see the messages above, or: gcloud compute tpus queued-resources describe $NAME \
--project=$PROJECT --zone=$ZONE"
  [ "$delay" -ge 960 ] || delay=$((delay * 2))
}

if dry_run; then
  job_object result
  request_state >/dev/null
  delete_request
  create_request
  exit 0
fi

shown=
replacing=no # whether this script deleted the request in order to create another
while :; do
  pause=60
  # A failed query (network, expired login) says nothing about the job: try again.
  if ! { result=$(job_object result) && state=$(request_state); }; then
    sleep "$pause"
    continue
  fi
  case $result in
    done* | failed*)
      say "$NAME: $result"
      # Usually the machine has deleted itself.
      delete_and_wait
      case $result in done*) exit 0 ;; *) exit 1 ;; esac
      ;;
  esac
  if [ "$state" != "$shown" ]; then say "$NAME is $state"; fi
  shown=$state
  case $state in
    PREEMPTED | SUSPENDED | FAILED)
      [ "$state" != FAILED ] || count_failure
      say "requesting another machine"
      replacing=yes
      delete_request || count_failure
      ;;
    ABSENT)
      [ "$replacing" = yes ] || die "there is no request named $NAME in $ZONE: it was never \
submitted, or was deleted by hand. tpu/submit.sh $1 starts it or continues it"
      create_request || count_failure
      ;;
    DELETING | SUSPENDING) ;;
    ACTIVE)
      replacing=no
      failures=0 delay=60 waited=0
      ;;
    *) replacing=no ;;
  esac
  sleep "$pause"
done

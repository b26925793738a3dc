#!/usr/bin/env bash
# tpu/status.sh JOB_FILE: prints the state of the request, the result of a job that ended, and the
# end of the newest log.
set -euo pipefail
# shellcheck source=tpu/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ $# = 1 ] || die "usage: tpu/status.sh JOB_FILE; received: $*"
load_job "$1"
printf 'request: %s\n' "$(request_state)"
printf 'result: %s\n' "$(job_object result)"
# A log's name is its start time.
log=$(ask gcloud storage ls "$FOLDER/logs/" 2>/dev/null | tail -n 1) || true
if [ -n "$log" ]; then
  printf '%s:\n' "$log"
  ask gcloud storage cat --range=-3000 "$log"
else
  printf 'no log yet\n'
fi

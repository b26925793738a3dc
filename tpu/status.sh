#!/usr/bin/env bash
# tpu/status.sh JOB_FILE: prints the state of the request, the result of a job that ended, and the
# end of the newest log.
set -euo pipefail
# shellcheck source=tpu/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ $# = 1 ] || die "usage: tpu/status.sh JOB_FILE; received: $*"
load_job "$1"
# Whatever can be read is printed; what cannot be read gives a line and status 1.
status=0
unread() {
  printf '%s: %s cannot be read: see the message above\n' "$(basename "$0")" "$1" >&2
  status=1
}

if state=$(request_state); then printf 'request: %s\n' "$state"; else unread "the request"; fi
if result=$(job_object result); then
  printf 'result: %s\n' "${result:-none yet}"
else
  unread "$FOLDER/result"
fi
# A log's name is its start time.
if ! logs=$(if_any gcloud storage ls "$FOLDER/logs/"); then
  unread "$FOLDER/logs/"
elif [ -z "$logs" ]; then
  printf 'no log yet\n'
else
  log=$(tail -n 1 <<<"$logs")
  printf '%s:\n' "$log" | printable
  ask gcloud storage cat --range=-3000 "$log" | printable || unread "the log"
fi
exit "$status"

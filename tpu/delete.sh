#!/usr/bin/env bash
# tpu/delete.sh JOB_FILE: deletes the request and the machine in any state. The bucket keeps its
# files: if you submit the job again, it continues from its last checkpoint.
set -euo pipefail
# shellcheck source=tpu/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ $# = 1 ] || die "usage: tpu/delete.sh JOB_FILE; received: $*"
load_job "$1"
delete_and_wait
if dry_run; then exit 0; fi
say "no request and no machine named $NAME is left in $ZONE"
say "the bucket keeps the job's files; to delete them: gcloud storage rm --recursive $FOLDER"

#!/usr/bin/env bash
# Puts the pipeline on Google Cloud, and takes it away again: ./deploy.sh --help
#
# How to read it: main, at the end, is the whole story; deploy/ has the parts. Everything that is there already is read first, all at once, and
# kept in $STATE; names, billing and APIs are judged before anything is changed. Then one ensure_* function a resource
# compares and changes only what differs. So a second run changes nothing, and a run that failed is just started again.
#
# What is not idempotent by itself, and how it is made so:
#   create commands (accounts, database, repository, job, pool)  only when the reading found nothing
#   run deploy, workflows deploy   a label holds the hash of source and settings: the same hash is not deployed again
#   IAM bindings                   only when missing; what you no longer name in ROLES or SECRETS stays until you remove it
#   scheduler jobs update          never resumes a paused job: its state is looked at afterwards
# Two deploys of one pipeline at the same time are not guarded against.
#
# Runs on bash 3.2 (macOS) and newer: no associative arrays, no mapfile, no `wait -n`.
set -euo pipefail
export LC_ALL=C CLOUDSDK_CORE_DISABLE_PROMPTS=1 # never a question in the middle of a deploy
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly REPOSITORY=cloud-run-source-deploy # where `gcloud run deploy --source` keeps its images
readonly STAGE=.stage

# shellcheck source=deploy/running.sh
source deploy/running.sh
# shellcheck source=deploy/settings.sh
source deploy/settings.sh
# shellcheck source=deploy/state.sh
source deploy/state.sh
# shellcheck source=deploy/foundation.sh
source deploy/foundation.sh
# shellcheck source=deploy/github.sh
source deploy/github.sh
# shellcheck source=deploy/services.sh
source deploy/services.sh
# shellcheck source=deploy/chain.sh
source deploy/chain.sh
# shellcheck source=deploy/operate.sh
source deploy/operate.sh
# shellcheck source=deploy/gaps.sh
source deploy/gaps.sh
# shellcheck source=deploy/destroy.sh
source deploy/destroy.sh

usage() {
  cat <<'HELP'
Usage: ./deploy.sh [options]            deploy what differs
       ./deploy.sh destroy [options]    delete what this pipeline made (asks first; data stays)

  --project P, --region R   instead of the settings' PROJECT and REGION
  --env NAME                the environment: settings.NAME.env lies over settings.env
  --dry-run                 print the commands of a first deploy, ready to paste; no login needed, nothing is changed
  --only PART               foundation, proxy, workflow, schedule, or a step's name; may be repeated
  --skip PART               everything but PART; may be repeated (CI: --skip foundation)
  --yes                     destroy: do not ask
  --delete-data             destroy: delete the data too (the database, or this pipeline's records in a shared one)
  -h, --help

`foundation` (APIs, accounts, IAM, database, repository, alerts) needs a privileged person; README.md, "Deploy", lists the roles.
HELP
}

parse_options() {
  DRY_RUN=false DESTROY=false DELETE_DATA=false YES=false
  OPTION_PROJECT="" OPTION_REGION="" OPTION_ENVIRONMENT="" ONLY=" " SKIP=" "
  while (($#)); do
    case $1 in
    --project=* | --region=* | --env=* | --only=* | --skip=*)
      set -- "${1%%=*}" "${1#*=}" "${@:2}"
      continue
      ;;
    --project | --region | --env | --only | --skip) [[ -n ${2:-} ]] || die "$1 needs a value; see ./deploy.sh --help" ;;
    esac
    case $1 in
    --project) OPTION_PROJECT=$2 && shift ;;
    --region) OPTION_REGION=$2 && shift ;;
    --env) OPTION_ENVIRONMENT=$2 && shift ;;
    --only) ONLY+="$2 " && shift ;;
    --skip) SKIP+="$2 " && shift ;;
    --dry-run) DRY_RUN=true ;;
    --yes) YES=true ;;
    --delete-data) DELETE_DATA=true ;;
    destroy) DESTROY=true ;;
    -h | --help) usage && exit 0 ;;
    *) die "unknown option $1; see ./deploy.sh --help" ;;
    esac
    shift
  done
}

check() {
  if [[ ! -d tools ]]; then
    echo "check skipped: there is no tools/" >&2
    return
  fi
  local arguments=(--deploy --env "$ENVIRONMENT")
  if $DRY_RUN; then arguments=(--env "$ENVIRONMENT"); fi # what is still to be set is a warning: the plan can be looked at
  ./pipeline check "${arguments[@]}" >&2 || die "check found errors; nothing was changed"
}

summary() {
  local changes console="https://console.cloud.google.com"
  $DRY_RUN && return
  changes=$(wc -l <"$STATE/changes")
  if ((changes == 0)); then
    printf '\nNothing changed, nothing built: %s (%s) is as its files say.\n' "$PIPELINE" "$ENVIRONMENT"
  else
    printf '\n%d changes made to %s (%s) in %s, %s.\n' "$changes" "$PIPELINE" "$ENVIRONMENT" "$PROJECT" "$REGION"
  fi
  cat <<TEXT
  runs        $console/workflows/workflow/$REGION/$PIPELINE/executions?project=$PROJECT
  functions   $console/run?project=$PROJECT
  schedule    $console/cloudscheduler?project=$PROJECT   $SCHEDULE ($TIME_ZONE)
  records     $console/firestore/databases/$DATABASE/data?project=$PROJECT   ${PIPELINE}_runs
  first run   gcloud scheduler jobs run $JOB --location=$REGION --project=$PROJECT   (the next slot still runs at its time)
TEXT
  wanted foundation || return 0
  if [[ -z $NOTIFICATION_CHANNEL ]]; then
    echo "  alerts      tell nobody yet: set NOTIFICATION_CHANNEL in settings.env (gcloud beta monitoring channels list)"
  fi
  if [[ -n $GITHUB_REPOSITORY ]]; then
    cat <<TEXT
  CI          in $GITHUB_REPOSITORY, under Settings > Secrets and variables > Actions > Variables:
                WORKLOAD_IDENTITY_PROVIDER=projects/$PROJECT_NUMBER/locations/global/workloadIdentityPools/$(pool)/providers/github
                DEPLOYER=$(account deployer)
TEXT
  fi
}

main() {
  local part
  parse_options "$@"
  load_settings
  find_steps
  begin
  { $DRY_RUN && ! $DESTROY; } || command -v gcloud >/dev/null || die "gcloud is not on PATH: https://cloud.google.com/sdk/docs/install (or look with --dry-run)"
  if $DESTROY; then
    ONLY=" " SKIP=" "
    read_state
    judge_state
    destroy
    return
  fi
  check
  stage "$(service proxy)" proxy
  for part in "${STEPS[@]}"; do stage "$(service "$part")" "functions/$part"; done
  if watches_gaps; then stage_gaps; fi
  read_state
  judge_state
  if wanted foundation; then foundation; fi
  services
  if wanted workflow; then
    say "workflow"
    start workflow ensure_workflow
    join
  fi
  if wanted schedule; then
    say "schedule"
    start schedule ensure_job
    if queues; then start sweep ensure_sweep; fi
    if watches_gaps; then start gaps ensure_gaps; else start gaps remove_gaps; fi
    join
  fi
  summary
}

main "$@"

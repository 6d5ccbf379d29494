# shellcheck shell=bash
# The functions: the proxy and one service a step.

readonly BASE_IMAGE=python313

# stage SERVICE FOLDER: what is uploaded: the function, the runtime beside it, and one requirements.txt of both.
stage() {
  local target=$STAGE/$1
  rm -rf "$target"
  mkdir -p "$target"
  cp -R "$2/." exactly_once "$target"
  rm -rf "$target/step.env" "$target/requirements.txt" "$target/exactly_once/requirements.txt"
  find "$target" \( -name __pycache__ -o -name '*.pyc' -o -name '.*_cache' \) -prune -exec rm -rf {} +
  requirements exactly_once/requirements.txt "$2/requirements.txt" >"$target/requirements.txt"
}

# requirements FILE...: those that there are, merged.
requirements() {
  local file
  for file in "$@"; do
    if [[ -f $file ]]; then grep -vE '^ *(#|$)' "$file" || true; fi
  done | sort -u
}

# hash SERVICE ARGUMENT...: of the staged files and everything that is said about the service.
hash() {
  local target=$STAGE/$1
  shift
  { (cd "$target" && find . -type f -exec "${SHA256[@]}" {} + | sort) && printf '%s\n' "$@"; } | sha256 | cut -c1-40
}

# The environment that every function gets.
shared_environment() {
  ENVIRONMENT_VARIABLES=(
    "PIPELINE=$PIPELINE"
    "SCOPE=$PROJECT/$REGION/$ENVIRONMENT"
    "GOOGLE_CLOUD_PROJECT=$PROJECT"
    "FIRESTORE_DATABASE=$DATABASE"
    "RETENTION_DAYS=$(setting RETENTION_DAYS 90)"
    "TIME_ZONE=$TIME_ZONE"
  )
}

ensure_proxy() {
  shared_environment
  ENVIRONMENT_VARIABLES+=(
    "WORKFLOW=projects/$PROJECT/locations/$REGION/workflows/$PIPELINE"
    "PROXY_LEASE=$(setting PROXY_LEASE 120)"
    "PROXY_TIMEOUT=$(setting PROXY_TIMEOUT 60)"
    "JOB=$JOB"
    "ON_OVERLAP=$(setting ON_OVERLAP allow)"
    "SCHEDULE=$SCHEDULE"
    "THREADS=8"
  )
  SERVICE_ARGUMENTS=(
    "--service-account=$(account proxy)"
    --concurrency=8
    "--timeout=$(setting PROXY_TIMEOUT 60)"
    --memory=512Mi
    --cpu=1
    --max-instances=3
    --clear-secrets
  )
  ensure_service "$(service proxy)" "$(account scheduler)"
}

ensure_step() {
  local name
  load_step "$1"
  shared_environment
  ENVIRONMENT_VARIABLES+=(
    "STEP=$1"
    "STEP_TIMEOUT=$IN_TIMEOUT"
    "STEP_LEASE=$IN_LEASE"
    "MAX_ATTEMPTS=$IN_MAX_ATTEMPTS"
    "THREADS=$IN_THREADS"
  )
  for name in $IN_SETTINGS $IN_RECEIVERS; do ENVIRONMENT_VARIABLES+=("$name=$(setting "$name" "")"); done
  SERVICE_ARGUMENTS=(
    "--service-account=$(step_account "$1")"
    "--concurrency=$IN_THREADS" # the threads that the framework runs, no more: else requests wait for one with their time running
    "--timeout=$IN_TIMEOUT"
    "--memory=$IN_MEMORY"
    "--cpu=$IN_CPU"
    "--max-instances=$IN_MAX_INSTANCES"
  )
  if [[ -n $IN_SECRETS ]]; then
    SERVICE_ARGUMENTS+=("--set-secrets=${IN_SECRETS// /,}")
  else
    SERVICE_ARGUMENTS+=(--clear-secrets)
  fi
  ensure_service "$(service "$1")" "$(account workflow)"
}

# ensure_service SERVICE INVOKER: deployed as SERVICE_ARGUMENTS and ENVIRONMENT_VARIABLES say, and called by INVOKER only.
# A revision that does not come up takes no traffic: the last good one goes on serving, and the next run deploys again,
# since "unchanged" asks for the newest revision to be the one that is ready.
ensure_service() {
  local line content created ready variables
  variables=$(printf '~~%s' "${ENVIRONMENT_VARIABLES[@]}")
  [[ ${ENVIRONMENT_VARIABLES[*]} != *~~* ]] || die "a setting has ~~ in its value, which deploy.sh needs for itself"
  SERVICE_ARGUMENTS+=(
    --function=main
    "--base-image=$BASE_IMAGE"
    "--build-service-account=projects/$PROJECT/serviceAccounts/$(account build)"
    --no-allow-unauthenticated
    --ingress=internal
    "--set-env-vars=^~~^${variables#\~\~}"
    # The build compiles our modules; with this their .pyc are checked by content and not by the time of a file, which the
    # image resets: else every cold start would compile them again.
    --set-build-env-vars=SOURCE_DATE_EPOCH=315532800
  )
  content=$(hash "$1" "${SERVICE_ARGUMENTS[@]}")
  line=$(row services "$1")
  created=$(field "$line" 5) ready=$(field "$line" 6)
  if [[ $(field "$line" 4) == "$content" && -n $ready && $created == "$ready" ]]; then
    echo_unless_dry "unchanged"
  else
    change "building and deploying $1" gcloud run deploy "$1" --project="$PROJECT" --region="$REGION" --source="$STAGE/$1" \
      "${SERVICE_ARGUMENTS[@]}" --labels="$LABELS,content=$content" --format=none
  fi
  if [[ -n $line && $(field "$line" 7) != True ]]; then
    warn "$1: its traffic is fixed on a revision, so the newest one serves nothing: gcloud run services update-traffic $1 --to-latest --region=$REGION --project=$PROJECT"
  fi
  ensure_invoker "$1" "$2" "$line"
}
echo_unless_dry() { $DRY_RUN || echo "$1"; }

# ensure_invoker SERVICE INVOKER LINE: the one account that may call it; nobody is let in without a name.
ensure_invoker() {
  local public
  : >"$STATE/invokers-$1"
  if [[ -n $3 ]]; then
    see "invokers-$1" gcloud run services get-iam-policy "$1" --project="$PROJECT" --region="$REGION" \
      --flatten='bindings[].members' --format="$(rows bindings.role,bindings.members)"
  fi
  if ! grep -qxF "roles/run.invoker|serviceAccount:$2" "$STATE/invokers-$1"; then
    change "letting ${2%%@*} call $1" gcloud run services add-iam-policy-binding "$1" --project="$PROJECT" --region="$REGION" \
      --member="serviceAccount:$2" --role=roles/run.invoker --format=none
  fi
  for public in allUsers allAuthenticatedUsers; do
    if grep -qxF "roles/run.invoker|$public" "$STATE/invokers-$1"; then
      change "closing $1 to $public" gcloud run services remove-iam-policy-binding "$1" --project="$PROJECT" --region="$REGION" \
        --member="$public" --role=roles/run.invoker --format=none
    fi
  done
}

services() {
  local part
  say "functions"
  if wanted proxy; then start proxy ensure_proxy; fi
  for part in "${STEPS[@]}"; do
    if wanted "$part"; then start "$part" ensure_step "$part"; fi
  done
  join
}

# The root URL of a service: known before it is deployed, unless its name is too long for that.
service_url() {
  local label=$1-${PROJECT_NUMBER//@*@/000000000000}
  if ((${#label} <= 63)); then
    printf %s "https://$1-$PROJECT_NUMBER.$REGION.run.app"
  elif $DRY_RUN; then
    printf %s "@URL_OF_$1@"
  else
    gcloud run services describe "$1" --project="$PROJECT" --region="$REGION" --format='value(status.url)'
  fi
}

# shellcheck shell=bash
# What joins the functions: the workflow, and the Scheduler job that starts it.

# After the functions: a workflow never calls a function that is not there yet.
ensure_workflow() {
  local step url urls="" content
  local arguments
  for step in "${STEPS[@]}"; do
    url=$(service_url "$(service "$step")")
    urls+=",\"$step\":\"$url\""
  done
  arguments=(
    --source=workflows/main.yaml
    "--service-account=$(account workflow)"
    --call-log-level=log-errors-only
    "--set-env-vars=^~~^STEP_URLS={${urls#,}}"
  )
  # The project's number is left out, so that the hash is the same under --dry-run.
  content=$({ cat workflows/main.yaml && printf '%s\n' "${arguments[@]//$PROJECT_NUMBER/}"; } | sha256 | cut -c1-40)
  if [[ $(field "$(cat "$STATE/workflow")" 3) == "$content" ]]; then
    echo_unless_dry "unchanged"
    return
  fi
  change "deploying the workflow $PIPELINE" gcloud workflows deploy "$PIPELINE" --project="$PROJECT" --location="$REGION" \
    "${arguments[@]}" --labels="$LABELS,content=$content" --format=none
}

readonly JOB_FIELDS=state,description,schedule,timeZone,attemptDeadline,httpTarget.uri,httpTarget.httpMethod,httpTarget.oidcToken.serviceAccountEmail,httpTarget.oidcToken.audience,retryConfig.retryCount,retryConfig.maxRetryDuration,retryConfig.minBackoffDuration,retryConfig.maxBackoffDuration,retryConfig.maxDoublings

# pause_again JOB: it was paused before an update; if it is not any more, it is paused.
pause_again() {
  see "state-$1" gcloud scheduler jobs describe "$1" --project="$PROJECT" --location="$REGION" --format="$(rows state)"
  if [[ $(cat "$STATE/state-$1") != PAUSED ]]; then
    change "pausing $1 again" gcloud scheduler jobs pause "$1" --project="$PROJECT" --location="$REGION" --format=none
  fi
}

# The audience is the proxy's root URL: that is what the function's front checks. Every flag is said each time, so that
# `update` ends where `create` would.
ensure_job() {
  local url now wanted state arguments
  url=$(service_url "$(service proxy)")
  now=$(cat "$STATE/job")
  state=${now%%|*}
  wanted=$(printf '|%s' "$MARK" "$SCHEDULE" "$TIME_ZONE" "$(setting ATTEMPT_DEADLINE 90)s" "$url/" POST "$(account scheduler)" "$url" \
    "$(setting MAX_RETRY_ATTEMPTS 5 | sed 's/^0$//')" "$(setting MAX_RETRY_DURATION 3600)s" "$(setting MIN_BACKOFF 10)s" \
    "$(setting MAX_BACKOFF 180)s" "$(setting MAX_DOUBLINGS 4 | sed 's/^0$//')") # the API leaves zeros out
  arguments=(
    "--project=$PROJECT"
    "--location=$REGION"
    "--description=$MARK"
    "--schedule=$SCHEDULE"
    "--time-zone=$TIME_ZONE"
    "--uri=$url/"
    --http-method=POST
    "--oidc-service-account-email=$(account scheduler)"
    "--oidc-token-audience=$url"
    "--attempt-deadline=$(setting ATTEMPT_DEADLINE 90)s"
    "--max-retry-attempts=$(setting MAX_RETRY_ATTEMPTS 5)"
    "--max-retry-duration=$(setting MAX_RETRY_DURATION 3600)s"
    "--min-backoff=$(setting MIN_BACKOFF 10)s"
    "--max-backoff=$(setting MAX_BACKOFF 180)s"
    "--max-doublings=$(setting MAX_DOUBLINGS 4)"
  )
  if [[ -z $now ]]; then
    change "making the job $JOB: $SCHEDULE ($TIME_ZONE)" gcloud scheduler jobs create http "$JOB" "${arguments[@]}" --format=none
  elif [[ $now != "$state$wanted" ]]; then
    change "updating the job $JOB: $SCHEDULE ($TIME_ZONE)" gcloud scheduler jobs update http "$JOB" "${arguments[@]}" --format=none
    if [[ $state == PAUSED ]]; then pause_again "$JOB"; fi
  else
    echo "unchanged"
  fi
  if [[ $state == PAUSED ]]; then echo "the job $JOB is paused and stays so: gcloud scheduler jobs resume $JOB --location=$REGION --project=$PROJECT"; fi
}

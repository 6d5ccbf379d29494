# shellcheck shell=bash
# GAPS_SCHEDULE: a Cloud Run job that runs `./pipeline gaps`, and the Scheduler job that starts it.

watches_gaps() { [[ -n $(setting GAPS_SCHEDULE "") ]]; }
gaps_job() { printf %s "$JOB-gaps"; }

# Read also when the setting is empty: it may have been set before.
read_gaps() {
  start gaps-job see gaps-job gcloud run jobs describe "$(service gaps)" --project="$PROJECT" --region="$REGION" \
    --format="$(rows metadata.labels.exactly_once,metadata.labels.environment,metadata.labels.content)"
  start gaps-schedule see gaps-schedule gcloud scheduler jobs describe "$(gaps_job)" --project="$PROJECT" --location="$REGION" \
    --format="$(rows state,description)"
}

our_gaps_job() { [[ $(cat "$STATE/gaps-job") == "$PIPELINE|$ENVIRONMENT|"* ]]; }
our_gaps_schedule() { [[ $(cat "$STATE/gaps-schedule") == *"|$MARK: "* ]]; }

judge_gaps() {
  watches_gaps && wanted schedule || return 0
  [[ ! -s $STATE/gaps-job ]] || our_gaps_job || ours "the Cloud Run job $(service gaps)" "" ""
  [[ ! -s $STATE/gaps-schedule ]] || our_gaps_schedule || ours "the Scheduler job $(gaps_job)" "" ""
}

# What `gaps` needs: the tools, the runtime, the settings; of the steps only their settings, since their code does not run
# there. An overlay says what --project and --region said.
stage_gaps() {
  local target step overlay=settings.$ENVIRONMENT.env
  target=$STAGE/$(service gaps)
  [[ " ${STEPS[*]} " != *" gaps "* ]] || die "a step is called gaps, the name of GAPS_SCHEDULE's own job and account: rename the step, or leave GAPS_SCHEDULE empty"
  [[ -d tools ]] || die "GAPS_SCHEDULE is set, and there is no tools/ to run gaps with"
  rm -rf "$target"
  mkdir -p "$target"
  cp -R exactly_once tools settings.env "$target"
  for step in "${STEPS[@]}"; do
    mkdir -p "$target/functions/$step"
    cp "functions/$step/step.env" "$target/functions/$step"
    : >"$target/functions/$step/main.py"
  done
  {
    if [[ -f $overlay ]]; then grep -vE '^(PROJECT|REGION)=' "$overlay" || true; fi
    printf '\nPROJECT=%s\nREGION=%s\n' "$PROJECT" "$REGION"
  } >"$target/$overlay"
  find "$target" \( -name __pycache__ -o -name '*.pyc' -o -name '.*_cache' \) -prune -exec rm -rf {} +
  requirements exactly_once/requirements.txt proxy/requirements.txt tools/requirements.txt >"$target/requirements.txt"
  echo 3.13 >"$target/.python-version"
  echo "web: python -m tools gaps --cloud --env $ENVIRONMENT --since 7d" >"$target/Procfile"
}

# Never tried again: what it finds is there the next time as well, and exit code 3 is an answer.
ensure_gaps() {
  local name arguments content
  name=$(service gaps)
  arguments=(
    "--service-account=$(account gaps)"
    --tasks=1
    --max-retries=0
    --task-timeout=30m
    --memory=512Mi
    --cpu=1
    --set-env-vars=USER=gaps # the name that the tools take for who they act as, there being no login
  )
  content=$(hash "$name" "${arguments[@]}")
  if [[ $(field "$(cat "$STATE/gaps-job")" 3) == "$content" ]]; then
    echo_unless_dry "unchanged"
  else
    change "building and deploying the job $name" gcloud run jobs deploy "$name" --project="$PROJECT" --region="$REGION" \
      --source="$STAGE/$name" "${arguments[@]}" --labels="$LABELS,content=$content" --format=none
  fi
  ensure_gaps_invoker "$name"
  ensure_gaps_schedule "$name"
}

ensure_gaps_invoker() {
  local member
  member=serviceAccount:$(account scheduler)
  see gaps-invokers gcloud run jobs get-iam-policy "$1" --project="$PROJECT" --region="$REGION" \
    --flatten='bindings[].members' --format="$(rows bindings.role,bindings.members)"
  if ! grep -qxF "roles/run.invoker|$member" "$STATE/gaps-invokers"; then
    change "letting scheduler run $1" gcloud run jobs add-iam-policy-binding "$1" --project="$PROJECT" --region="$REGION" \
      --member="$member" --role=roles/run.invoker --format=none
  fi
}

# Its description holds the hash of all its flags, as the sweep's does.
ensure_gaps_schedule() {
  local arguments content now
  arguments=(
    "--project=$PROJECT"
    "--location=$REGION"
    "--schedule=$(setting GAPS_SCHEDULE)"
    "--time-zone=$TIME_ZONE"
    "--uri=https://run.googleapis.com/v2/projects/$PROJECT/locations/$REGION/jobs/$1:run"
    --http-method=POST
    "--oauth-service-account-email=$(account scheduler)"
    --oauth-token-scope=https://www.googleapis.com/auth/cloud-platform
    --attempt-deadline=60s
    --max-retry-attempts=3
    --max-retry-duration=600s
    --min-backoff=10s
    --max-backoff=60s
    --max-doublings=3
  )
  content="$MARK: $(printf '%s\n' "${arguments[@]}" | sha256 | cut -c1-40)"
  arguments+=("--description=$content")
  now=$(cat "$STATE/gaps-schedule")
  if [[ -z $now ]]; then
    change "making the job $(gaps_job), which looks for gaps" gcloud scheduler jobs create http "$(gaps_job)" "${arguments[@]}" --format=none
  elif [[ ${now#*|} != "$content" ]]; then
    change "updating the job $(gaps_job)" gcloud scheduler jobs update http "$(gaps_job)" "${arguments[@]}" --format=none
    if [[ $now == "PAUSED|"* ]]; then pause_again "$(gaps_job)"; fi
  fi
}

# Ours only: what has another owner is left alone.
remove_gaps() {
  if our_gaps_schedule; then
    change "deleting the job $(gaps_job)" gcloud scheduler jobs delete "$(gaps_job)" --project="$PROJECT" --location="$REGION"
  fi
  if our_gaps_job; then
    change "deleting the job $(service gaps)" gcloud run jobs delete "$(service gaps)" --project="$PROJECT" --region="$REGION"
    if ! $DESTROY; then echo "the account $(account gaps), its roles and its alert stay until destroy"; fi
  fi
}

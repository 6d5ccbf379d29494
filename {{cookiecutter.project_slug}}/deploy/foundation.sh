# shellcheck shell=bash
# The foundation: APIs, accounts, IAM, database, repository, alerts. For a privileged person.

# Firestore: fields that grow with time or size are not worth an index, and an index on them caps the writes at 500/s.
readonly UNINDEXED_RUN=(claimed_at expire_at run)
readonly UNINDEXED_STEP=(claimed_at expire_at result error resolutions)
readonly ALERTS=(scheduler execution step)

ensure_apis() {
  local api missing=() wanted=("${APIS[@]}")
  if [[ -n $(secrets) ]]; then wanted+=(secretmanager.googleapis.com); fi
  if [[ -n $GITHUB_REPOSITORY ]]; then wanted+=(sts.googleapis.com); fi
  for api in "${wanted[@]}"; do
    if ! grep -qx "$api" "$STATE/apis"; then missing+=("$api"); fi
  done
  if ((${#missing[@]})); then
    change "enabling ${missing[*]}" gcloud services enable "${missing[@]}" --project="$PROJECT"
  fi
}

ensure_account() {
  local email
  email=$(account "$1")
  if [[ -z $(row accounts "$email") ]]; then
    change "making the account $email" gcloud iam service-accounts create "${email%%@*}" --project="$PROJECT" \
      --display-name="$PIPELINE $1" --description="$MARK" --format=none
  fi
}

# member|role|condition of every project-wide binding. datastore.user is narrowed to the one database; workflows.invoker
# exists for a whole project only.
project_bindings() {
  local step role only="only database $DATABASE"
  printf '%s|%s|%s\n' \
    "$(account proxy)" roles/datastore.user "$only" \
    "$(account proxy)" roles/workflows.invoker "" \
    "$(account workflow)" roles/logging.logWriter "" \
    "$(account build)" roles/run.builder ""
  for step in "${STEPS[@]}"; do
    (
      load_step "$step"
      printf '%s|roles/datastore.user|%s\n' "$(step_account "$step")" "$only"
      for role in $IN_ROLES; do printf '%s|%s|\n' "$(step_account "$step")" "$role"; done
    )
  done
  if watches_gaps; then # to read records, executions, and the schedule's history in the audit log
    printf '%s|%s|%s\n' \
      "$(account gaps)" roles/datastore.viewer "$only" \
      "$(account gaps)" roles/workflows.viewer "" \
      "$(account gaps)" roles/logging.viewer ""
  fi
  if [[ -n $GITHUB_REPOSITORY ]]; then
    for role in run.admin run.sourceDeveloper workflows.editor cloudscheduler.admin serviceusage.serviceUsageConsumer; do
      printf '%s|roles/%s|\n' "$(account deployer)" "$role"
    done
  fi
}

# One after the other: two changes of one policy at the same time refuse each other. --condition is always said: once one
# binding of a project has a condition, gcloud asks about every other one.
ensure_bindings() {
  local member role condition secret
  while IFS='|' read -r member role condition; do
    if grep -qxF "$role|serviceAccount:$member|$condition" "$STATE/policy"; then continue; fi
    if [[ -n $condition ]]; then
      condition="expression=resource.name==\"projects/$PROJECT/databases/$DATABASE\",title=$condition"
    fi
    change "granting $role to ${member%%@*}" gcloud projects add-iam-policy-binding "$PROJECT" \
      --member="serviceAccount:$member" --role="$role" --condition="${condition:-None}" --format=none
  done < <(project_bindings | sort -u)
  while IFS='|' read -r secret member; do
    if [[ -f $STATE/secret-$secret ]] && grep -qxF "serviceAccount:$member|roles/secretmanager.secretAccessor" "$STATE/secret-$secret"; then continue; fi
    change "granting ${member%%@*} the secret $secret" gcloud secrets add-iam-policy-binding "$secret" --project="$PROJECT" \
      --member="serviceAccount:$member" --role=roles/secretmanager.secretAccessor --condition=None --format=none
  done < <(secrets | sort -u)
}

# Its location is for good. An existing database is taken as it is, and protected.
ensure_database() {
  local line
  line=$(cat "$STATE/database")
  if [[ -z $line ]]; then
    change "making the database $DATABASE in $REGION" gcloud firestore databases create --database="$DATABASE" --project="$PROJECT" \
      --location="$REGION" --type=firestore-native --delete-protection --format=none
  elif [[ $(field "$line" 3) != DELETE_PROTECTION_ENABLED ]]; then
    change "protecting the database $DATABASE" gcloud firestore databases update --database="$DATABASE" --project="$PROJECT" \
      --delete-protection --format=none
  fi
}

# ensure_field GROUP FIELD: no index on it; and for expire_at, records are deleted when it has passed. Both go on in the
# background at Google for minutes; TTL is asked for after the index, since one field takes one change at a time.
ensure_field() {
  local name=projects/$PROJECT/databases/$DATABASE/collectionGroups/$1/fields/$2
  if ! grep -qxF "$name|" "$STATE/exemptions"; then
    change "taking $1.$2 out of the indexes" gcloud firestore indexes fields update "$2" --collection-group="$1" \
      --database="$DATABASE" --project="$PROJECT" --disable-indexes --format=none
  fi
  if [[ $2 == expire_at ]] && ! grep -qxF "$name" "$STATE/ttls"; then
    change "letting $1 expire" gcloud firestore fields ttls update "$2" --collection-group="$1" \
      --database="$DATABASE" --project="$PROJECT" --enable-ttl --async --format=none
  fi
}

# Before the parallel part: else each of its deploys would try to make it.
ensure_repository() {
  if [[ ! -s $STATE/repository ]]; then
    change "making the repository $REPOSITORY" gcloud artifacts repositories create "$REPOSITORY" --project="$PROJECT" \
      --location="$REGION" --repository-format=docker --format=none
  fi
}

# Who watches the watcher: a gaps job that cannot be started is told as well.
alert_jobs() {
  if watches_gaps; then
    echo "(resource.labels.job_id=\"$JOB\" OR resource.labels.job_id=\"$(gaps_job)\")"
  else
    echo "resource.labels.job_id=\"$JOB\""
  fi
}
# The log lines that an alert counts, and what it tells the person it wakes.
alert_filter() {
  case $1 in
  scheduler) echo "resource.type=\"cloud_scheduler_job\" AND $(alert_jobs) AND severity>=ERROR" ;;
  execution) echo "resource.type=\"workflows.googleapis.com/Workflow\" AND resource.labels.workflow_id=\"$PIPELINE\" AND jsonPayload.state=\"FAILED\"" ;;
  step) echo "resource.type=\"cloud_run_revision\" AND labels.pipeline=\"$PIPELINE\" AND (jsonPayload.event=\"step.held\" OR jsonPayload.event=\"step.failed\")" ;;
  esac
}
alert_text() {
  case $1 in
  scheduler) echo "An attempt of the Scheduler job $JOB failed. It is tried again; if the last one fails too, the slot is lost: ./pipeline gaps" ;;
  execution) echo "A run of $PIPELINE failed. Nothing repeats it by itself: ./pipeline runs, then ./pipeline resume" ;;
  step) echo "A step of $PIPELINE failed or is held: it waits for a person. ./pipeline show, then ./pipeline resolve" ;;
  gaps) echo "The job $(service gaps) found slots of $PIPELINE without a run, or with one that failed; or it could not look. Its log has them: ./pipeline gaps" ;;
  esac
}
alert_resource() {
  case $1 in
  scheduler) echo cloud_scheduler_job ;;
  execution) echo workflows.googleapis.com/Workflow ;;
  step) echo cloud_run_revision ;;
  gaps) echo cloud_run_job ;;
  esac
}
# What is above 0, as JSON has it: our own count of log lines; Cloud Run counts a job's failed executions itself.
alert_metric() {
  case $1 in
  gaps) printf %s "metric.type=\\\"run.googleapis.com/job/completed_execution_count\\\" AND metric.labels.result=\\\"failed\\\" AND resource.labels.job_name=\\\"$(service gaps)\\\"" ;;
  *) printf %s "metric.type=\\\"logging.googleapis.com/user/$PIPELINE-$1-failed\\\"" ;;
  esac
}

ensure_metric() {
  local name=$PIPELINE-$1-failed filter description command=""
  filter=$(alert_filter "$1")
  description="$MARK: $(printf %s "$filter" | sha256)" # the hash of the filter, to see whether it differs
  case $(row metrics "$name") in
  "$name|$description") return ;;
  "") command=create ;;
  *) command=update ;;
  esac
  change "counting in the log: $name" gcloud logging metrics "$command" "$name" --project="$PROJECT" \
    --description="$description" --log-filter="$filter" --format=none
}

ensure_alert() {
  local file=$STAGE/alert-$1.json hash line name channels=""
  if [[ -n $NOTIFICATION_CHANNEL ]]; then channels="\"$NOTIFICATION_CHANNEL\""; fi
  cat >"$file" <<JSON
{
  "displayName": "$PIPELINE ($ENVIRONMENT): $1 failed",
  "documentation": {"content": "$(alert_text "$1")", "mimeType": "text/markdown"},
  "combiner": "OR",
  "conditions": [{
    "displayName": "any in a minute",
    "conditionThreshold": {
      "filter": "$(alert_metric "$1") AND resource.type=\"$(alert_resource "$1")\"",
      "aggregations": [{"alignmentPeriod": "60s", "perSeriesAligner": "ALIGN_DELTA", "crossSeriesReducer": "REDUCE_SUM"}],
      "comparison": "COMPARISON_GT",
      "thresholdValue": 0,
      "duration": "0s",
      "trigger": {"count": 1}
    }
  }],
  "alertStrategy": {"autoClose": "3600s"},
  "notificationChannels": [$channels]
}
JSON
  hash=$(sha256 <"$file" | cut -c1-40)
  line=$(awk -F'|' -v alert="$1" -v owner="$PIPELINE" -v environment="$ENVIRONMENT" \
    '$1 == alert && $2 == owner && $3 == environment' "$STATE/policies" | head -n 1)
  name=$(field "$line" 5)
  if [[ -z $line ]]; then
    change "alerting: $1" gcloud alpha monitoring policies create --project="$PROJECT" --policy-from-file="$file" \
      --user-labels="alert=$1,$LABELS,content=$hash" --format=none
  elif [[ $(field "$line" 4) != "$hash" ]]; then
    change "alerting: $1" gcloud alpha monitoring policies update "$name" --project="$PROJECT" --policy-from-file="$file" \
      --update-user-labels="content=$hash" --format=none
  fi
}

foundation() {
  local name field
  say "foundation"
  start apis ensure_apis
  join
  for name in $(accounts); do start "account-$name" ensure_account "$name"; done
  for name in "${ALERTS[@]}"; do start "metric-$name" ensure_metric "$name"; done
  start database ensure_database
  start repository ensure_repository
  if [[ -n $GITHUB_REPOSITORY ]]; then start pool ensure_pool; fi
  join
  start bindings ensure_bindings
  for field in "${UNINDEXED_RUN[@]}"; do start "runs.$field" ensure_field "${PIPELINE}_runs" "$field"; done
  for field in "${UNINDEXED_STEP[@]}"; do start "steps.$field" ensure_field "${PIPELINE}_steps" "$field"; done
  for name in "${ALERTS[@]}"; do start "alert-$name" ensure_alert "$name"; done
  if watches_gaps; then start alert-gaps ensure_alert gaps; fi
  if [[ -n $GITHUB_REPOSITORY ]]; then
    for name in $(accounts); do start "user-$name" ensure_user "$name"; done
  fi
  join
}

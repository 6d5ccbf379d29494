# shellcheck shell=bash
# Taking it all away again.

# What is labelled as this pipeline's, and its accounts. The repository, the APIs and the secrets may serve others and stay.
destroy() {
  local name kind answer
  if ! $YES && ! $DRY_RUN; then
    cat <<TEXT
This deletes from $PROJECT ($REGION): the job $JOB, the workflow $PIPELINE with its executions (running ones are cancelled),
the services of $PIPELINE ($ENVIRONMENT), its alerts, accounts and their roles.$($DELETE_DATA && echo " And its DATA: $(data_words).")
TEXT
    [[ -t 0 || ! -t 1 ]] || die "nobody to ask: say --yes"
    printf 'Type %s to go on: ' "$PIPELINE"
    read -r answer || answer=""
    [[ $answer == "$PIPELINE" ]] || die "nothing was deleted"
  fi
  if [[ -s $STATE/job ]]; then start job change "deleting the job" gcloud scheduler jobs delete "$JOB" --project="$PROJECT" --location="$REGION"; fi
  if [[ $(cat "$STATE/sweep") == "$MARK: "* ]]; then
    start sweep change "deleting the job $(sweep_job)" gcloud scheduler jobs delete "$(sweep_job)" --project="$PROJECT" --location="$REGION"
  fi
  start gaps remove_gaps
  join
  if [[ -s $STATE/workflow ]]; then start workflow change "deleting the workflow" gcloud workflows delete "$PIPELINE" --project="$PROJECT" --location="$REGION"; fi
  for name in $(awk -F'|' -v owner="$PIPELINE" -v environment="$ENVIRONMENT" '$2 == owner && $3 == environment { print $1 }' "$STATE/services"); do
    start "$name" change "deleting the service" gcloud run services delete "$name" --project="$PROJECT" --region="$REGION"
  done
  for name in $(awk -F'|' -v owner="$PIPELINE" -v environment="$ENVIRONMENT" '$2 == owner && $3 == environment { print $5 }' "$STATE/policies"); do
    start "alert-${name##*/}" change "deleting the alert" gcloud alpha monitoring policies delete "$name" --project="$PROJECT"
  done
  start roles remove_bindings
  join
  for kind in "${ALERTS[@]}"; do
    if [[ -n $(row metrics "$PIPELINE-$kind-failed") ]]; then
      start "metric-$kind" change "deleting the metric" gcloud logging metrics delete "$PIPELINE-$kind-failed" --project="$PROJECT"
    fi
  done
  for name in $(awk -F'|' -v mark="$MARK" '$2 == mark { print $1 }' "$STATE/accounts"); do
    start "${name%%@*}" change "deleting the account" gcloud iam service-accounts delete "$name" --project="$PROJECT"
  done
  if [[ -n $GITHUB_REPOSITORY && $(cat "$STATE/pool") == ACTIVE ]]; then
    start pool change "deleting the pool" gcloud iam workload-identity-pools delete "$(pool)" --project="$PROJECT" --location=global
  fi
  if $DELETE_DATA && [[ -s $STATE/database ]]; then start data delete_data; fi
  join
  if $DELETE_DATA; then
    printf '\n%s (%s) is gone, its data too.\n' "$PIPELINE" "$ENVIRONMENT"
  else
    printf '\n%s (%s) is gone; its data in the database %s is kept (--delete-data deletes it), and its runs still count.\n' "$PIPELINE" "$ENVIRONMENT" "$DATABASE"
  fi
}

# Before the accounts: a binding of a deleted account stays behind under another name.
remove_bindings() {
  local role member
  awk -F'|' -v mark="$MARK" 'NR == FNR { if ($2 == mark) mine["serviceAccount:" $1]; next } $2 in mine { print $1 "|" $2 }' \
    "$STATE/accounts" "$STATE/policy" | sort -u | while IFS='|' read -r role member; do
    change "taking $role from ${member#*:}" gcloud projects remove-iam-policy-binding "$PROJECT" --member="$member" --role="$role" --all --format=none
  done
}

# A database of another name than the pipeline's may hold the data of others: there, only our own records go.
data_words() {
  if [[ $DATABASE == "$PIPELINE" ]]; then echo "the whole database $DATABASE"; else echo "the records ${PIPELINE}_runs and ${PIPELINE}_steps in the database $DATABASE"; fi
}
delete_data() {
  if [[ $DATABASE != "$PIPELINE" ]]; then
    change "deleting $(data_words)" gcloud firestore bulk-delete --collection-ids="${PIPELINE}_runs,${PIPELINE}_steps" --database="$DATABASE" --project="$PROJECT"
    return
  fi
  change "taking the protection off $DATABASE" gcloud firestore databases update --database="$DATABASE" --project="$PROJECT" --no-delete-protection --format=none
  change "deleting $(data_words)" gcloud firestore databases delete --database="$DATABASE" --project="$PROJECT"
}

# shellcheck shell=bash
# What is there already, and whether the deploy may begin.

# What one part of a deploy needs, and what `foundation` enables.
readonly REST_APIS=(run.googleapis.com cloudbuild.googleapis.com artifactregistry.googleapis.com
  workflows.googleapis.com cloudscheduler.googleapis.com)
readonly APIS=("${REST_APIS[@]}" cloudresourcemanager.googleapis.com firestore.googleapis.com iam.googleapis.com
  iamcredentials.googleapis.com logging.googleapis.com monitoring.googleapis.com storage.googleapis.com
  workflowexecutions.googleapis.com)

# The first reading, alone: without a login that works every other one would say the same, so that is told here, once.
read_project() {
  start project try_project
  join
  if [[ ! -s $STATE/project ]] && grep -qsiE "$NO_LOGIN" "$STATE/project.err"; then
    die "gcloud is not logged in, or its login has expired: run  gcloud auth login  and start the same command again; nothing was changed"
  fi
}
try_project() {
  see project gcloud projects describe "$PROJECT" --format="$(rows projectNumber,lifecycleState)" >"$STATE/project.said" && return
  if ! grep -qiE "$NO_LOGIN" "$STATE/project.err"; then
    cat "$STATE/project.said"
    return 1
  fi
}

# Everything that the wanted parts need to know; all but the project is read at once.
read_state() {
  local secret
  read_project
  start apis see apis gcloud services list --enabled --project="$PROJECT" --format='value(config.name)'
  start services see services gcloud run services list --project="$PROJECT" --region="$REGION" \
    --format="$(rows metadata.name,metadata.labels.exactly_once,metadata.labels.environment,metadata.labels.content,status.latestCreatedRevisionName,status.latestReadyRevisionName,spec.traffic[0].latestRevision)"
  start workflow see workflow gcloud workflows describe "$PIPELINE" --project="$PROJECT" --location="$REGION" \
    --format="$(rows labels.exactly_once,labels.environment,labels.content,state)"
  start job see job gcloud scheduler jobs describe "$JOB" --project="$PROJECT" --location="$REGION" --format="$(rows "$JOB_FIELDS")"
  if queues || $DESTROY; then
    start sweep see sweep gcloud scheduler jobs describe "$(sweep_job)" --project="$PROJECT" --location="$REGION" --format='value(description)'
  fi
  if wanted schedule; then read_gaps; fi
  if wanted foundation; then
    start billing see billing gcloud billing projects describe "$PROJECT" --format='value(billingEnabled)'
    start accounts see accounts gcloud iam service-accounts list --project="$PROJECT" --format="$(rows email,description)"
    start policy see policy gcloud projects get-iam-policy "$PROJECT" --flatten='bindings[].members' \
      --format="$(rows bindings.role,bindings.members,bindings.condition.title)"
    start database see database gcloud firestore databases describe --database="$DATABASE" --project="$PROJECT" \
      --format="$(rows locationId,type,deleteProtectionState)"
    start ttls see ttls gcloud firestore fields ttls list --database="$DATABASE" --project="$PROJECT" --format='value(name)'
    start exemptions see exemptions gcloud firestore indexes fields list --database="$DATABASE" --project="$PROJECT" \
      --format="$(rows name,indexConfig.indexes)"
    start repository see repository gcloud artifacts repositories describe "$REPOSITORY" --project="$PROJECT" --location="$REGION" \
      --format='value(format)'
    start metrics see metrics gcloud logging metrics list --project="$PROJECT" --format="$(rows name,description)"
    start policies see policies gcloud alpha monitoring policies list --project="$PROJECT" \
      --format="$(rows userLabels.alert,userLabels.exactly_once,userLabels.environment,userLabels.content,name)"
    for secret in $(secrets | cut -d'|' -f1 | sort -u); do
      start "secret-$secret" see "secret-$secret" gcloud secrets get-iam-policy "$secret" --project="$PROJECT" \
        --flatten='bindings[].members' --format="$(rows bindings.members,bindings.role)"
    done
    if [[ -n $GITHUB_REPOSITORY ]]; then read_github; fi
  fi
  join
  PROJECT_NUMBER=$(field "$(cat "$STATE/project")" 1)
  if $DRY_RUN; then
    PROJECT_NUMBER=@PROJECT_NUMBER@
    say "the commands of a first deploy of $PIPELINE ($ENVIRONMENT) to $PROJECT, $REGION"
    echo "PROJECT_NUMBER=\$(gcloud projects describe $PROJECT --format='value(projectNumber)')"
  fi
}

# secret|account for every secret that a step names.
secrets() {
  local step secret
  for step in "${STEPS[@]}"; do
    (
      load_step "$step"
      for secret in $IN_SECRETS; do
        secret=${secret#*=}
        printf '%s|%s\n' "${secret%:*}" "$(step_account "$step")"
      done
    )
  done
}

# ours WHAT OWNER ENVIRONMENT: a resource of this name that is somebody else's ends the deploy before it begins.
ours() {
  [[ $2 == "$PIPELINE" && $3 == "$ENVIRONMENT" ]] || die "$1 is there already and belongs to ${2:-something else}${3:+ ($3)}: choose another PIPELINE in settings.env, or delete it, or label it $LABELS to hand it over"
}

judge_state() {
  local api line part name missing="" count
  $DRY_RUN && return
  [[ -s $STATE/project ]] || die "there is no project '$PROJECT', or your account cannot see it: look at PROJECT in settings.env (gcloud projects list)"
  [[ $(field "$(cat "$STATE/project")" 2) == ACTIVE ]] || die "the project $PROJECT is being deleted"
  for api in "${REST_APIS[@]}"; do
    if ! wanted foundation && ! grep -qx "$api" "$STATE/apis"; then missing+=" $api"; fi
  done
  [[ -z $missing ]] || die "not enabled in $PROJECT:$missing. A privileged person runs  ./deploy.sh --only foundation  first"
  for part in proxy "${STEPS[@]}"; do
    name=$(service "$part")
    line=$(row services "$name")
    [[ -z $line ]] || ours "the service $name" "$(field "$line" 2)" "$(field "$line" 3)"
  done
  line=$(cat "$STATE/workflow")
  [[ -z $line ]] || ours "the workflow $PIPELINE" "$(field "$line" 1)" "$(field "$line" 2)"
  line=$(cat "$STATE/job")
  [[ -z $line || $(field "$line" 2) == "$MARK" ]] || ours "the Scheduler job $JOB" "" ""
  judge_gaps
  awk -F'|' -v owner="$PIPELINE" -v environment="$ENVIRONMENT" '$2 == owner && $3 == environment { print $1 }' "$STATE/services" |
    while read -r name; do
      part=${name#"$PIPELINE-"}
      case " proxy ${STEPS[*]//_/-} " in
      *" $part "*) ;;
      *) warn "the service $name belongs to no step any more: gcloud run services delete $name --region=$REGION --project=$PROJECT" ;;
      esac
    done
  wanted foundation || return 0
  [[ $(cat "$STATE/billing") != False ]] || die "the project $PROJECT has no billing: gcloud billing projects link $PROJECT --billing-account=ID"
  count=$(wc -l <"$STATE/accounts")
  for part in $(accounts); do
    name=$(account "$part")
    line=$(row accounts "$name")
    if [[ -z $line ]]; then count=$((count + 1)); fi
    [[ -z $line || $(field "$line" 2) == "$MARK" ]] || ours "the account $name" "" ""
  done
  ((count <= 100)) || warn "this makes $count service accounts; a project has 100 unless its quota was raised (STEP_ACCOUNTS=shared needs fewer)"
  line=$(cat "$STATE/database")
  [[ -z $line || $(field "$line" 2) == FIRESTORE_NATIVE ]] || die "the database $DATABASE is not in native mode: choose another DATABASE in settings.env"
  [[ -z $line || $(field "$line" 1) == "$REGION" ]] || warn "the database $DATABASE is in $(field "$line" 1), not in $REGION: every claim travels there"
  for name in $(secrets | cut -d'|' -f1 | sort -u); do
    if [[ ! -s $STATE/secret-$name && -s $STATE/secret-$name.err ]]; then
      die "there is no secret '$name' (SECRETS of a step): printf %s VALUE | gcloud secrets create $name --data-file=- --project=$PROJECT"
    fi
  done
}

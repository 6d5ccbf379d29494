# shellcheck shell=bash
# ON_OVERLAP=queue: the job that asks the proxy, every minute, to start the slots whose turn has come.

queues() { [[ $(setting ON_OVERLAP allow) == queue ]]; }
sweep_job() { printf %s "$JOB-sweep"; }

# Its description holds the hash of all its flags: headers cannot be compared one by one in gcloud's output.
ensure_sweep() {
  local url arguments content now
  url=$(service_url "$(service proxy)")
  arguments=(
    "--project=$PROJECT"
    "--location=$REGION"
    "--schedule=* * * * *"
    --time-zone=Etc/UTC
    "--uri=$url/"
    --http-method=POST
    "--oidc-service-account-email=$(account scheduler)"
    "--oidc-token-audience=$url"
    "--attempt-deadline=$(setting ATTEMPT_DEADLINE 90)s"
    --max-retry-attempts=0 # the next one is a minute away
    --max-retry-duration=0s
    --min-backoff=5s
    --max-backoff=5s
    --max-doublings=0
  )
  content="$MARK: $(printf '%s\n' "${arguments[@]}" | sha256 | cut -c1-40)"
  arguments+=("--description=$content")
  now=$(cat "$STATE/sweep")
  if [[ -z $now ]]; then
    change "making the job $(sweep_job), which starts queued slots" gcloud scheduler jobs create http "$(sweep_job)" \
      "${arguments[@]}" --headers=X-Exactly-Once-Sweep=queued --format=none
  elif [[ $now != "$content" ]]; then
    [[ $now == "$MARK: "* ]] || ours "the Scheduler job $(sweep_job)" "" ""
    change "updating the job $(sweep_job)" gcloud scheduler jobs update http "$(sweep_job)" \
      "${arguments[@]}" --update-headers=X-Exactly-Once-Sweep=queued --format=none
  else
    echo_unless_dry "unchanged"
  fi
}

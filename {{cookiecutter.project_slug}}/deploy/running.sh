# shellcheck shell=bash
# Words to the user, and running commands: in parallel, again while it helps, or only printed.

readonly PARALLEL=16 # gcloud commands at once; each takes about 100 MB
readonly RETRIES=12  # of a change that meets TRANSIENT: 2, 4, ... 60, 60 s, about 8 minutes in all
# Project-wide policies are read, changed and written back, and what was just made is not visible everywhere at once.
readonly TRANSIENT='concurrent policy changes|ABORTED|[Ss]ervice account .* does not exist|Service account .* not found|Unknown service account|Principal .* does not exist|has not been used in project|SERVICE_DISABLED|Cannot find metric|RATE_LIMIT_EXCEEDED|UNAVAILABLE|currently unavailable'
readonly ABSENT='NOT_FOUND|[Nn]ot found|does not exist|could not be found|Cannot find|has not been used in project|SERVICE_DISABLED|is not enabled'
readonly NO_LOGIN='active account|gcloud auth login|reauthentication'

say() { if $DRY_RUN; then printf '\n# %s\n' "$*"; else printf '%s\n' "$*"; fi; }
warn() { printf 'deploy.sh: warning: %s\n' "$*" >&2; }
die() {
  printf 'deploy.sh: %s\n' "$*" >&2
  exit 1
}

# What a failed command most likely means, in a line of our own. Takes the file with its output.
explain() {
  local output=$1
  said() { grep -qiE "$1" "$output"; }
  if said "$NO_LOGIN"; then
    echo "not logged in: run  gcloud auth login"
  elif said 'maximum number of service accounts|quota.*service account|service account.*quota|IAM_SERVICE_ACCOUNT'; then
    echo "the project's quota of service accounts is reached: set STEP_ACCOUNTS=shared in settings.env, or ask for a higher quota"
  elif said 'billing'; then
    echo "billing: link a billing account to $PROJECT (gcloud billing projects link $PROJECT --billing-account=ID)"
  elif said 'has not been used in project|SERVICE_DISABLED|is not enabled'; then
    echo "an API is not enabled: run  ./deploy.sh --only foundation"
  elif said 'invalid choice.*policies|components install'; then
    echo "alert policies need gcloud's alpha commands: run  gcloud components install alpha"
  elif said 'PERMISSION_DENIED|does not have permission|permission.*denied|forbidden'; then
    echo "your account lacks a role: README.md, \"Deploy\", lists who needs which (without foundation: --skip foundation)"
  else
    echo "see the message above; when its cause is mended, start the same command again: it carries on"
  fi
}

# start NAME COMMAND...: run a part in the background, its lines prefixed with its name. join waits for all of them.
# Each part is a process group of its own, so that Ctrl-C can end it with everything below it.
PARTS=() PART_NAMES=()
start() {
  local name=$1
  shift
  if $DRY_RUN; then
    "$@"
    return
  fi
  set -m
  (take_place "$name" "$@") </dev/null &
  set +m
  PARTS+=("$!") PART_NAMES+=("$name")
}

take_place() {
  local name=$1 line
  shift
  read -r -u 9 -n 1 _ # a place among PARALLEL; the trap gives it back
  trap 'printf . >&9' EXIT
  "$@" 2>&1 | while IFS= read -r line; do
    printf '%s\n' "$line" >>"$STATE/$name.log"
    printf '[%s] %s\n' "$name" "$line"
  done
}

# Wait for every part. What failed is told last, with its log: the others' progress does not bury it.
join() {
  local i failed=""
  for ((i = 0; i < ${#PARTS[@]}; i++)); do
    wait "${PARTS[i]}" || failed="$failed ${PART_NAMES[i]}"
  done
  PARTS=() PART_NAMES=()
  [[ -n $failed ]] || return 0
  for i in $failed; do
    printf '\n%s failed:\n' "$i" >&2
    sed 's/^/  /' "$STATE/$i.log" >&2
  done
  die "failed:$failed. Nothing was rolled back; what was serving still is. Mend the cause and start the same command again."
}

# Ctrl-C: end every part with all below it. TERM may get lost in a process that is just being started; KILL never is.
stop() {
  trap '' INT TERM HUP
  exec 8>&2 2>/dev/null # bash may complain of the command that the signal cut off
  local part parts
  parts=$(jobs -p) # not PARTS: a part that was started this very moment is not in it yet
  for part in $parts; do kill -TERM -- "-$part" || true; done
  for part in $parts; do kill -KILL -- "-$part" || true; done
  for part in $parts; do wait "$part" || true; done
  echo "deploy.sh: stopped. Start the same command again: it carries on." >&8
  exit 130
}

begin() {
  STATE=$(mktemp -d "${TMPDIR:-/tmp}/deploy.XXXXXX")
  trap 'rm -rf "$STATE"' EXIT
  trap stop INT TERM HUP
  mkfifo "$STATE/places"
  exec 9<>"$STATE/places"
  printf "%${PARALLEL}s" "" | tr ' ' . >&9
  : >"$STATE/changes"
}

# see NAME COMMAND...: a command that only reads; what it prints is kept as $STATE/NAME, empty if there is no such thing.
see() {
  local name=$1
  shift
  : >"$STATE/$name"
  if $DRY_RUN && ! $DESTROY; then return; fi # as if nothing were there
  if "$@" >"$STATE/$name" 2>"$STATE/$name.err"; then return; fi
  : >"$STATE/$name"
  if grep -qE "$ABSENT" "$STATE/$name.err"; then return; fi
  cat "$STATE/$name.err"
  explain "$STATE/$name.err"
  return 1
}

# change WHAT COMMAND...: a command that changes something. It is tried again while what it says is TRANSIENT.
change() {
  local what=$1 attempt output
  shift
  if $DRY_RUN; then
    print_command "$@"
    return
  fi
  echo "$what"
  output=$(mktemp "$STATE/output.XXXXXX")
  for ((attempt = 1; ; attempt++)); do
    if "$@" 2>&1 | tee "$output"; then
      echo "$what" >>"$STATE/changes"
      return
    fi
    if ((attempt == RETRIES)) || ! grep -qE "$TRANSIENT" "$output"; then break; fi
    local seconds=$((attempt > 5 ? 60 : 1 << attempt))
    echo "not yet; trying again in $seconds s"
    sleep "$seconds"
  done
  explain "$output"
  return 1
}

# Ready to paste. What is known only after a login is left to the shell that runs it.
print_command() {
  printf '%q ' "$@" | sed -E \
    -e 's/@PROJECT_NUMBER@/$PROJECT_NUMBER/g' \
    -e "s/@URL_OF_([a-z0-9-]+)@/\$(gcloud run services describe \1 --region=$REGION --project=$PROJECT --format='value(status.url)')/g" \
    -e 's/ $//'
  printf '\n'
}

# row NAME KEY: the line of the reading NAME whose first column is KEY.
row() { awk -F'|' -v key="$2" '$1 == key' "$STATE/$1"; }
field() { printf %s "$1" | cut -d'|' -f"$2"; }
rows() { printf 'value[separator="|"](%s)' "$1"; }

# shellcheck shell=bash
# Settings, steps, and the names that follow from them.

# read_settings FILE PREFIX: each KEY=VALUE of the file becomes the variable PREFIX_KEY. The file is read, never run: a value
# is bare, or in double quotes where \" \\ \$ \` stand for themselves; anything that bash would expand or run is refused.
read_settings() {
  local file=$1 prefix=$2 line key value number=0
  local pair='^([A-Z][A-Z0-9_]*)=(.*)$' bare='^[A-Za-z0-9_./:@%+,=-]*$' quoted='^"(([^"\$`]|\\["\$`])*)"$' escaped='^([^\]*)\\(.)(.*)$'
  [[ -f $file ]] || die "$file: not found"
  while IFS= read -r line || [[ -n $line ]]; do
    number=$((number + 1))
    [[ $line =~ ^[[:blank:]]*$ || $line == \#* ]] && continue
    [[ $line =~ $pair ]] || die "$file:$number: write KEY=VALUE, the key in capitals, without spaces around the equals sign"
    key=${BASH_REMATCH[1]} line=${BASH_REMATCH[2]}
    line=${line%"${line##*[! ]}"} # spaces at the end
    [[ $line != *[[:cntrl:]]* ]] || die "$file:$number: $key has a control character (a tab, or the line ends of Windows)"
    value=$line
    if [[ $line =~ $quoted ]]; then
      line=${BASH_REMATCH[1]} value=""
      while [[ $line =~ $escaped ]]; do
        value+=${BASH_REMATCH[1]}${BASH_REMATCH[2]} line=${BASH_REMATCH[3]}
      done
      value+=$line
    elif ! [[ $line =~ $bare ]]; then
      die "$file:$number: $key: put the value in double quotes, with \\\" \\\\ \\\$ \\\` for those characters"
    fi
    printf -v "${prefix}_$key" %s "$value"
  done <"$file"
}

# setting NAME [DEFAULT]: a value of the settings; without a default it has to be there.
setting() {
  local variable=SET_$1
  [[ -n ${!variable:-${2-}} || -n ${2+x} ]] || die "settings.env: $1 is missing; give it a value"
  printf %s "${!variable:-${2-}}"
}

load_settings() {
  read_settings settings.env SET
  local named=${SET_ENVIRONMENT:-prod}
  ENVIRONMENT=${OPTION_ENVIRONMENT:-$named}
  if [[ -f settings.$ENVIRONMENT.env ]]; then
    read_settings "settings.$ENVIRONMENT.env" SET
  elif [[ $ENVIRONMENT != "$named" ]]; then
    die "settings.$ENVIRONMENT.env: not found; write it with what differs in $ENVIRONMENT (PROJECT, or PIPELINE and DATABASE)"
  fi
  PIPELINE=$(setting PIPELINE)
  PROJECT=${OPTION_PROJECT:-$(setting PROJECT)}
  REGION=${OPTION_REGION:-$(setting REGION)}
  DATABASE=$(setting DATABASE "$PIPELINE")
  JOB=$(setting JOB "$PIPELINE")
  SCHEDULE=$(setting SCHEDULE)
  TIME_ZONE=$(setting TIME_ZONE Etc/UTC)
  STEP_ACCOUNTS=$(setting STEP_ACCOUNTS each)
  GITHUB_REPOSITORY=$(setting GITHUB_REPOSITORY "")
  NOTIFICATION_CHANNEL=$(setting NOTIFICATION_CHANNEL "")
  [[ $PIPELINE =~ ^[a-z](-?[a-z0-9])*$ ]] || die "settings.env: PIPELINE is '$PIPELINE'; write lower-case letters, digits and single dashes"
  [[ $PROJECT =~ ^[a-z][a-z0-9-]{4,28}[a-z0-9]$ ]] || die "PROJECT is '$PROJECT'; write a Google Cloud project id"
  [[ $REGION =~ ^[a-z]+(-[a-z]+)+[0-9]+$ ]] || die "REGION is '$REGION'; write a region such as europe-west1"
  [[ $ENVIRONMENT =~ ^[a-z][a-z0-9-]*$ ]] || die "the environment is '$ENVIRONMENT'; write a short lower-case name"
  [[ $STEP_ACCOUNTS == each || $STEP_ACCOUNTS == shared ]] || die "settings.env: STEP_ACCOUNTS is '$STEP_ACCOUNTS'; write each or shared"
  MARK="exactly-once pipeline $PIPELINE ($ENVIRONMENT)" # the description of what has no labels; labels say the same
  LABELS="exactly_once=$PIPELINE,environment=$ENVIRONMENT"
}

# The steps are the folders of functions/ with a main.py; each one's step.env is checked while nothing has been changed.
find_steps() {
  local main part
  STEPS=()
  for main in functions/*/main.py; do
    [[ -f $main ]] || die "functions/: no step yet; add one with  ./pipeline add-step NAME"
    main=${main#functions/}
    STEPS+=("${main%/main.py}")
  done
  for main in "${STEPS[@]}"; do
    (load_step "$main")
  done
  need_receivers
  for part in $ONLY $SKIP; do
    case " foundation proxy workflow schedule ${STEPS[*]} " in
    *" $part "*) ;;
    *) die "no part is called '$part'; there are: foundation proxy workflow schedule ${STEPS[*]}" ;;
    esac
  done
}

# wanted PART: whether --only and --skip leave it in.
wanted() {
  [[ $SKIP != *" $1 "* ]] || return 1
  [[ $ONLY == " " || $ONLY == *" $1 "* ]]
}

# load_step STEP: its step.env as IN_*; what it leaves out has the defaults below.
load_step() {
  local secret file=functions/$1/step.env
  IN_TIMEOUT=300 IN_LEASE=330 IN_MEMORY=512Mi IN_CPU=1 IN_THREADS=8 IN_MAX_INSTANCES=10 IN_MAX_ATTEMPTS=10
  IN_ROLES="" IN_SECRETS="" IN_SETTINGS="" IN_RECEIVERS=""
  read_settings "$file" IN
  for secret in $IN_SECRETS; do
    [[ $secret =~ ^[A-Z][A-Z0-9_]*=[A-Za-z0-9_-]+:[1-9][0-9]*$ ]] ||
      die "$file: SECRETS has '$secret'; write NAME=secret:VERSION with a number (latest would change under a running pipeline)"
  done
}

# The receivers' URLs: a deploy without one is refused; a dry run shows its commands and says what is missing.
need_receivers() {
  local step name missing
  $DESTROY && return
  missing=$(for step in "${STEPS[@]}"; do
    load_step "$step"
    for name in $IN_RECEIVERS; do
      if [[ -z $(setting "$name" "") ]]; then printf '%s\n' "$name (step $step writes to it)"; fi
    done
  done)
  [[ -n $missing ]] || return 0
  missing="settings.env: no URL for ${missing//$'\n'/, }"
  $DRY_RUN || die "$missing: give it; nothing was changed"
  warn "$missing: a real deploy is refused until it is given"
}

service() { printf %s "$PIPELINE-${1//_/-}"; }

# account NAME: the e-mail of the pipeline's account NAME. Account ids have 6 to 30 characters; a hash keeps others apart.
account() {
  local id
  id=$(account_id "$PIPELINE-${1//_/-}" 30)
  printf %s "$id@$PROJECT.iam.gserviceaccount.com"
}
account_id() {
  local id=$1
  if ((${#id} > $2 || ${#id} < 6)); then
    id=$(printf %s "$id" | sha256)
    id="$(printf %s "${1:0:$(($2 - 7))}" | sed 's/-*$//')-${id:0:6}"
  fi
  printf %s "$id"
}
step_account() { if [[ $STEP_ACCOUNTS == shared ]]; then account steps; else account "$1"; fi; }

# Every account: its name here.
accounts() {
  printf '%s\n' scheduler proxy workflow build
  if [[ $STEP_ACCOUNTS == shared ]]; then echo steps; else printf '%s\n' "${STEPS[@]}"; fi
  if watches_gaps; then echo gaps; fi
  if [[ -n $GITHUB_REPOSITORY ]]; then echo deployer; fi
}

if command -v sha256sum >/dev/null; then SHA256=(sha256sum); else SHA256=(shasum -a 256); fi
sha256() { "${SHA256[@]}" | cut -d' ' -f1; }

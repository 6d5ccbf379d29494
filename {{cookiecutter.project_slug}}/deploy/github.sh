# shellcheck shell=bash
# CI without keys: the repository's main branch, and nothing else, may act as the account `deployer`.

pool() { account_id "$PIPELINE-github" 32; }
github_condition() { echo "assertion.repository=='$GITHUB_REPOSITORY' && assertion.ref=='refs/heads/main'"; }

read_github() {
  local name email
  start pool see pool gcloud iam workload-identity-pools describe "$(pool)" --project="$PROJECT" --location=global --format='value(state)'
  start provider see provider gcloud iam workload-identity-pools providers describe github --workload-identity-pool="$(pool)" \
    --project="$PROJECT" --location=global --format='value(attributeCondition)'
  for name in $(accounts); do
    email=$(account "$name")
    start "users-$name" see "users-$name" gcloud iam service-accounts get-iam-policy "$email" --project="$PROJECT" \
      --flatten='bindings[].members' --format="$(rows bindings.role,bindings.members)"
  done
}

ensure_pool() {
  local pool condition
  pool=$(pool) condition=$(github_condition)
  case $(cat "$STATE/pool") in
  ACTIVE) ;;
  DELETED) change "bringing back the pool $pool" gcloud iam workload-identity-pools undelete "$pool" --project="$PROJECT" --location=global ;;
  *) change "making the pool $pool" gcloud iam workload-identity-pools create "$pool" --project="$PROJECT" --location=global \
    --description="$MARK" ;;
  esac
  if [[ ! -s $STATE/provider ]]; then
    change "letting GitHub's tokens in" gcloud iam workload-identity-pools providers create-oidc github --workload-identity-pool="$pool" \
      --project="$PROJECT" --location=global --issuer-uri=https://token.actions.githubusercontent.com \
      --attribute-mapping="google.subject=assertion.sub,attribute.repository=assertion.repository" --attribute-condition="$condition"
  elif [[ $(cat "$STATE/provider") != "$condition" ]]; then
    change "changing whose tokens are let in" gcloud iam workload-identity-pools providers update-oidc github --workload-identity-pool="$pool" \
      --project="$PROJECT" --location=global --attribute-condition="$condition"
  fi
}

# ensure_user NAME: the deployer may run code as the account NAME; GitHub's main branch may act as the deployer.
ensure_user() {
  local role=roles/iam.serviceAccountUser member
  member=serviceAccount:$(account deployer)
  if [[ $1 == deployer ]]; then
    role=roles/iam.workloadIdentityUser
    member="principalSet://iam.googleapis.com/projects/$PROJECT_NUMBER/locations/global/workloadIdentityPools/$(pool)/attribute.repository/$GITHUB_REPOSITORY"
  fi
  if [[ -f $STATE/users-$1 ]] && grep -qxF "$role|$member" "$STATE/users-$1"; then return; fi
  change "letting CI act as $1" gcloud iam service-accounts add-iam-policy-binding "$(account "$1")" --project="$PROJECT" \
    --member="$member" --role="$role" --condition=None --format=none
}

#!/bin/bash
# The first hour with curl alone: sign in, make a tenant, let somebody in, give their group a right, and see it count at once.
# story.sh BASE PASSWORD here|issuer    PASSWORD is the first admin's; BASE is an address of this machine, or https
set -euo pipefail
base=$1 password=$2 way=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$*" >&2; exit 1; }

# A person's browser is a jar of cookies.
browse() { local jar=$folder/$1.cookies; shift; curl -sSL --fail-with-body -m 20 -b "$jar" -c "$jar" "$@"; }
form_token() { sed -n 's/.*name="form_token" value="\([^"]*\)".*/\1/p' | head -1; }

sign_in_here() { # PERSON LOGIN PASSWORD
    local token
    token=$(browse "$1" "$base/sign-in?local=1" | form_token)
    browse "$1" "$base/sign-in" --data-urlencode "form_token=$token" --data-urlencode "login=$2" --data-urlencode "password=$3" \
        | grep -q 'You are signed in' || fail "$2 cannot sign in"
}

sign_in_at_issuer() { # PERSON
    local page
    page=$(browse "$1" -o /dev/null -w '%{url_effective}' "$base/")
    page=$(browse "$1" -o /dev/null -w '%{url_effective}' "$page" -d "prompt=login&login=$1&password=x")
    browse "$1" "$page" -d prompt=consent | grep -q "$1 Lovelace" || fail "$1 cannot sign in at the issuer"
}

accept_invitation() { # PERSON LINK
    local token
    token=$(browse "$1" "$base$2" | form_token)
    browse "$1" "$base/invitation" --data-urlencode "form_token=$token" -d "token=${2#*token=}" \
        -d 'password=correct horse battery' -d 'repeated=correct horse battery' | grep -q 'You are signed in' || fail "the invitation does not work"
}

# A token for the API, as the command line gets it: a code with PKCE.
let_in() { # PERSON
    local verifier challenge query token code
    verifier=$(openssl rand -hex 32)
    challenge=$(printf %s "$verifier" | openssl dgst -sha256 -binary | base64 | tr '+/' '-_' | tr -d '=')
    query="response_type=code&client_id=paddock-cli&redirect_uri=http://127.0.0.1:9/callback&code_challenge=$challenge&code_challenge_method=S256"
    token=$(browse "$1" "$base/oauth/authorize?$query" | form_token)
    code=$(browse "$1" --no-location -o /dev/null -w '%{redirect_url}' "$base/oauth/authorize" -d "$query&form_token=$token&decision=allow" \
        | sed -n 's/.*[?&]code=\([^&]*\).*/\1/p')
    browse "$1" "$base/oauth/token" -d "grant_type=authorization_code&client_id=paddock-cli&redirect_uri=http://127.0.0.1:9/callback&code=$code&code_verifier=$verifier" \
        | jq -er .access_token > "$folder/$1.token" || fail "$1 gets no token"
}

api() { # PERSON METHOD PATH [BODY]
    curl -sS --fail-with-body -m 20 -X "$2" "$base/api/v1$3" -H "Authorization: Bearer $(< "$folder/$1.token")" ${4:+-H 'Content-Type: application/json' -d "$4"}
}
may() { api "$1" GET "/permissions/check?relation=$2&object=tenant:$acme" | jq .allowed; }
expect() { [ "$1" = "$2" ] || fail "$3: $1 instead of $2"; }

sign_in_here admin admin "$password"
let_in admin
ada=admin
if [ "$way" = issuer ]; then
    sign_in_at_issuer ada
    let_in ada
    ada=ada
    api admin POST /admins "{\"subject\": \"user:$(api ada GET /whoami | jq -r .id)\"}" > /dev/null
fi
acme=$(api $ada POST /tenants '{"name": "acme-'"$way"'"}' | jq -r .id)
if [ "$way" = issuer ]; then
    sign_in_at_issuer bob
    let_in bob
    bob=$(api bob GET /whoami | jq -r .id)
    api $ada POST "/tenants/$acme/members" "{\"userId\": \"$bob\", \"role\": \"member\"}" > /dev/null
else
    invited=$(api $ada POST "/tenants/$acme/members" '{"login": "bob", "role": "member"}')
    bob=$(jq -r .id <<< "$invited")
    accept_invitation bob "$(jq -r .invitation.url <<< "$invited")"
    let_in bob
fi
expect "$(may bob can_create_backup)" false "a member"
group=$(api $ada POST "/tenants/$acme/groups" '{"name": "qa"}' | jq -r .id)
api $ada POST "/groups/$group/members" "{\"userId\": \"$bob\"}" > /dev/null
api $ada POST "/groups/$group/grants" "{\"object\": \"tenant:$acme\", \"relation\": \"operator\"}" > /dev/null
expect "$(may bob can_create_backup)" true "with the grant"
api $ada DELETE "/groups/$group/grants/operator@tenant:$acme"
expect "$(may bob can_create_backup)" false "without the grant"
api $ada DELETE "/tenants/$acme/members/$bob"
expect "$(api bob GET "/tenants/$acme" | jq -r .code)" not_found "who has left"
echo "Done."

#!/bin/sh
# Creates the login accounts of Faultline's processes, each with only the roles that it needs. The image of PostgreSQL
# runs this once, as the superuser, when its data directory is new. An account's name and password are taken from the
# URL of its process, so there is one place to change them.
set -eu

secrets=${FAULTLINE_SECRETS_FOLDER:-/run/secrets}

as_superuser() {
    psql --quiet --no-psqlrc --no-password --set ON_ERROR_STOP=1 \
        --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" "$@"
}

# read_login SECRET sets ACCOUNT and PASSWORD. psql gets them through the environment, since other accounts can read
# arguments. A URL must not contain percent-encoding.
read_login() {
    login=$(cat "$secrets/$1")
    login=${login#postgresql://}
    login=${login%%@*}
    case $login in
    *[!A-Za-z0-9_:-]* | :* | *: | *:*:*) login="" ;;
    *:*) ;;
    *) login="" ;;
    esac
    if [ -z "$login" ]; then
        echo "accounts.sh: $1 is not postgresql://NAME:PASSWORD@…, of letters, digits, - and _" >&2
        exit 1
    fi
    ACCOUNT=${login%%:*}
    PASSWORD=${login#*:}
    export ACCOUNT PASSWORD
}

# account SECRET ROLE…
account() {
    read_login "$1"
    shift
    as_superuser <<'SQL'
\getenv account ACCOUNT
\getenv password PASSWORD
CREATE ROLE :"account" LOGIN PASSWORD :'password';
GRANT CONNECT ON DATABASE :"DBNAME" TO :"account";
SQL
    for role in "$@"; do
        as_superuser --set role="$role" <<'SQL'
\getenv account ACCOUNT
GRANT :"role" TO :"account";
SQL
    done
}

# Check all secrets first: the image does not run this again on a half-initialised data directory.
for secret in migrator_url api_url worker_url reconciler_url inspector_url operator_url; do
    read_login "$secret"
done

# The roles exist before `faultline migrate --roles` grants them rights, so that it needs no right to create roles.
as_superuser <<'SQL'
REVOKE ALL ON DATABASE :"DBNAME" FROM PUBLIC;
CREATE ROLE faultline_owner NOLOGIN;
CREATE ROLE faultline_producer NOLOGIN;
CREATE ROLE faultline_worker NOLOGIN;
CREATE ROLE faultline_inspector NOLOGIN;
CREATE ROLE faultline_operator NOLOGIN;
GRANT CREATE ON DATABASE :"DBNAME" TO faultline_owner;
-- To detect a data directory that was restored from a base backup.
GRANT EXECUTE ON FUNCTION pg_catalog.pg_stat_file(text, boolean) TO faultline_owner;
SQL

account migrator_url faultline_owner
account api_url faultline_producer faultline_inspector faultline_operator # for keys that enqueue, read and operate
account worker_url faultline_worker
account reconciler_url faultline_worker
account inspector_url faultline_inspector
account operator_url faultline_operator faultline_producer # an account can create only keys with its own rights

#!/bin/sh
# The login accounts of Faultline's processes, each with the roles that it needs and no more. The image of PostgreSQL
# runs this once, as the superuser, when its data directory is new. An account's name and password are taken from the
# very URL that its process connects by, so there is one place to change them.
set -eu

secrets=${FAULTLINE_SECRETS_FOLDER:-/run/secrets}

as_superuser() {
    psql --quiet --no-psqlrc --no-password --set ON_ERROR_STOP=1 \
        --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" "$@"
}

# read_login SECRET: into ACCOUNT and PASSWORD. They go to psql through the environment, since arguments can be read by
# others; so a URL is plain, and nothing in it is percent-encoded.
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

# All of them before anything is made: a data directory that is half made is not tried again.
for secret in migrator_url api_url worker_url reconciler_url inspector_url operator_url; do
    read_login "$secret"
done

# The roles are there before `faultline migrate --roles` says what they may do, so that it needs no right to make any.
as_superuser <<'SQL'
REVOKE ALL ON DATABASE :"DBNAME" FROM PUBLIC;
CREATE ROLE faultline_owner NOLOGIN;
CREATE ROLE faultline_producer NOLOGIN;
CREATE ROLE faultline_worker NOLOGIN;
CREATE ROLE faultline_inspector NOLOGIN;
CREATE ROLE faultline_operator NOLOGIN;
GRANT CREATE ON DATABASE :"DBNAME" TO faultline_owner;
-- By it a data directory that was laid down from a backup is told from the one that it was taken of.
GRANT EXECUTE ON FUNCTION pg_catalog.pg_stat_file(text, boolean) TO faultline_owner;
SQL

account migrator_url faultline_owner
account api_url faultline_producer faultline_inspector faultline_operator # for keys to enqueue, read and operate
account worker_url faultline_worker
account reconciler_url faultline_worker
account inspector_url faultline_inspector
account operator_url faultline_operator faultline_producer # an account makes no key that may do more than itself

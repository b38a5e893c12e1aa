#!/bin/sh
# Makes a folder of secrets for compose.yaml, with passwords that nobody has seen, and prints the line that .env needs:
# new-secrets.sh FOLDER >> .env
set -eu

folder=${1:?"usage: new-secrets.sh FOLDER"}
database=${2:-postgres:5432/faultline}

mkdir -m 700 "$folder" # and never into one that exists: its database knows the old passwords
folder=$(cd "$folder" && pwd)

password() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

password >"$folder/postgres_password"
password >"$folder/grafana_password"
for name in migrator api worker reconciler inspector operator; do
    printf 'postgresql://%s:%s@%s\n' "$name" "$(password)" "$database" >"$folder/${name}_url"
done

# The folder is closed to everybody else here. The files are not: the processes in the containers are other accounts.
chmod 444 "$folder"/*
echo "FAULTLINE_SECRETS=$folder"

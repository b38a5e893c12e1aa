#!/bin/sh
# Creates a folder of secrets for compose.yaml, with random passwords, and prints the line for .env:
# new-secrets.sh FOLDER >> .env
set -eu

folder=${1:?"usage: new-secrets.sh FOLDER"}
database=${2:-postgres:5432/faultline}

mkdir -m 700 "$folder" # never an existing folder: its database has the old passwords
folder=$(cd "$folder" && pwd)

password() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

password >"$folder/postgres_password"
password >"$folder/grafana_password"
for name in migrator api worker reconciler inspector operator; do
    printf 'postgresql://%s:%s@%s\n' "$name" "$(password)" "$database" >"$folder/${name}_url"
done

# Only you can open the folder. The files are readable: processes in the containers run under other accounts.
chmod 444 "$folder"/*
echo "FAULTLINE_SECRETS=$folder"

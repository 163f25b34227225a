#!/usr/bin/env bash
# Runs a command with DATABASE_URL set:
#     tests/postgres.sh cargo bench --bench postgres
# Where it is set already, that server is used. Else it is that of a PostgreSQL
# server which lives as long as the command does, and loses all with it.
set -euo pipefail
(($#)) || { echo "usage: tests/postgres.sh COMMAND [ARGUMENT...]" >&2; exit 2; }
[ -z "${DATABASE_URL:-}" ] || exec "$@"
. "$(dirname "$0")/lib/server.sh"

# Debian keeps the server's programs off the path.
newest=$(compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -n 1 || true)
PATH=$PATH${newest:+:$newest}
command -v initdb pg_ctl >/dev/null || { echo "tests/postgres.sh: install the PostgreSQL server first (Debian: postgresql)" >&2; exit 1; }

make_home postgres
end_with_script pg_ctl stop -D "$dir/data" -m immediate
server initdb -D "$dir/data" --no-sync -A trust -U postgres -E UTF8 --locale C >"$dir/initdb.log" {alive}>&- ||
    { cat "$dir/initdb.log" >&2; exit 1; }

for _ in {1..10}; do
    any_port
    options="-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories="
    options+=" -c max_connections=300 -c fsync=off -c full_page_writes=off"
    if server pg_ctl start -D "$dir/data" -l "$dir/server.log" -o "$options" >/dev/null {alive}>&-; then
        DATABASE_URL=postgres://postgres@127.0.0.1:$port/postgres "$@" {alive}>&-
        exit
    fi
done
give_up

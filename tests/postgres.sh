#!/usr/bin/env bash
# Runs a command with DATABASE_URL set:
#     tests/postgres.sh cargo bench --bench postgres
# Where it is set already, that server is used. Else it is that of a PostgreSQL
# server which lives as long as the command does, and loses all with it.
set -euo pipefail
(($#)) || { echo "usage: tests/postgres.sh COMMAND [ARGUMENT...]" >&2; exit 2; }
[ -z "${DATABASE_URL:-}" ] || exec "$@"

# Debian keeps the server's programs off the path.
newest=$(compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -n 1 || true)
PATH=$PATH${newest:+:$newest}
command -v initdb pg_ctl >/dev/null || { echo "tests/postgres.sh: install the PostgreSQL server first (Debian: postgresql)" >&2; exit 1; }

# PostgreSQL refuses to run as root, and its user may not reach root's TMPDIR.
as_user=()
tmp=${TMPDIR:-/tmp}
if [ "$(id -u)" = 0 ]; then
    user=postgres
    id "$user" >/dev/null 2>&1 || user=nobody
    as_user=(setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups)
    tmp=/tmp
fi
dir=$(mktemp -d "$tmp/axum-idempotency-postgres.XXXXXX")
[ "${#as_user[@]}" = 0 ] || chown "$user" "$dir"
server() { (cd "$dir" && "${as_user[@]}" "$@"); }

# The server ends with this script, however that ends: the reader below sees
# the end of its input when nobody holds the other side of the pipe any more.
# The descriptor is kept from everything else that is started here.
exec {alive}> >(
    trap '' HUP INT TERM
    cat
    server pg_ctl stop -D "$dir/data" -m immediate >/dev/null 2>&1 || true
    rm -rf "$dir"
)
cleaner=$!
# After a signal bash no longer knows its children: then nobody waits.
clean() { exec {alive}>&-; wait "$cleaner" 2>/dev/null || true; }
trap clean EXIT

server initdb -D "$dir/data" --no-sync -A trust -U postgres -E UTF8 --locale C >"$dir/initdb.log" {alive}>&- ||
    { cat "$dir/initdb.log" >&2; exit 1; }

# A port below those that the kernel gives to outgoing connections; another one
# when somebody listens there.
for _ in {1..10}; do
    port=$((20000 + RANDOM % 12000))
    options="-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories="
    options+=" -c max_connections=300 -c fsync=off -c full_page_writes=off"
    if server pg_ctl start -D "$dir/data" -l "$dir/server.log" -o "$options" >/dev/null {alive}>&-; then
        DATABASE_URL=postgres://postgres@127.0.0.1:$port/postgres "$@" {alive}>&-
        exit
    fi
done
echo "tests/postgres.sh: the server does not start:" >&2
tail -n 20 "$dir/server.log" >&2
exit 1

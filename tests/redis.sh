#!/usr/bin/env bash
# Runs a command with REDIS_URL set:
#     tests/redis.sh cargo test --all-features --test it -- redis
# Where it is set already, that server is used. Else it is that of a Redis
# server (or Valkey, where only that is installed) which lives as long as the
# command does, and loses all with it.
set -euo pipefail
(($#)) || { echo "usage: tests/redis.sh COMMAND [ARGUMENT...]" >&2; exit 2; }
[ -z "${REDIS_URL:-}" ] || exec "$@"
. "$(dirname "$0")/lib/server.sh"

PATH=$PATH:/usr/sbin
program=$(command -v redis-server || command -v valkey-server) || { echo "tests/redis.sh: install the Redis server first (Debian: redis-server)" >&2; exit 1; }

# Its process id is there before it is.
start='echo $$ >server.pid; exec "$@" </dev/null'
is_running() { server sh -c 'kill -0 "$(cat server.pid)"' 2>/dev/null; }
is_ready() { grep -q 'Ready to accept connections' "$dir/server.log" 2>/dev/null; }

make_home redis
end_with_script sh -c 'kill -KILL "$(cat server.pid)"'
for _ in {1..10}; do
    any_port
    rm -f "$dir"/server.*
    # In a session of its own, for Ctrl-C is for the command.
    server setsid sh -c "$start" sh "$program" --port "$port" --bind 127.0.0.1 \
        --save '' --appendonly no --maxmemory-policy noeviction \
        >"$dir/server.log" 2>&1 {alive}>&- &
    disown
    until is_ready; do
        # It has given up when its process has come and gone.
        [ ! -s "$dir/server.pid" ] || is_running || break
        sleep 0.02
    done
    if is_ready; then
        REDIS_URL=redis://127.0.0.1:$port "$@" {alive}>&-
        exit
    fi
done
give_up

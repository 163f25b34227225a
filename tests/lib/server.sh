# What tests/postgres.sh and tests/redis.sh have in common, for them to source:
# a server that lives as long as a command does, and loses all with it.

# An unprivileged place for the server, as $dir: PostgreSQL refuses to run as
# root, and no server need. Its user may not reach root's TMPDIR.
make_home() {
    local tmp=${TMPDIR:-/tmp} user=postgres
    as_user=()
    if [ "$(id -u)" = 0 ]; then
        id "$user" >/dev/null 2>&1 || user=nobody
        as_user=(setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups)
        tmp=/tmp
    fi
    dir=$(mktemp -d "$tmp/axum-idempotency-$1.XXXXXX")
    [ "${#as_user[@]}" = 0 ] || chown "$user" "$dir"
}

# Runs a program there, as whoever runs the server.
server() { (cd "$dir" && "${as_user[@]}" "$@"); }

# The server ends with the script, however that ends: the reader below sees the
# end of its input when nobody holds the other side of the pipe any more, and
# ends the server by the command that is given. What else is started must not
# hold that side: {alive}>&-
end_with_script() {
    exec {alive}> >(
        trap '' HUP INT TERM
        cat
        server "$@" >/dev/null 2>&1 || true
        rm -rf "$dir"
    )
    cleaner=$!
    trap clean EXIT
}

# After a signal bash no longer knows its children: then nobody waits.
clean() { exec {alive}>&-; wait "$cleaner" 2>/dev/null || true; }

# A port below those that the kernel gives to outgoing connections, as $port;
# another one when somebody listens there.
any_port() { port=$((20000 + RANDOM % 12000)); }

# Nothing has helped: tells what the server said.
give_up() {
    echo "$0: the server does not start:" >&2
    tail -n 20 "$dir/server.log" >&2
    exit 1
}

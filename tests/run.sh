#!/usr/bin/env bash
# The one test command: sets up what the tests need, then runs every test with
# all features, and the doc tests. With arguments it runs `cargo test` on the
# test binary with them: tests/run.sh postgres:: runs the tests of that name.
set -euo pipefail
cd "$(dirname "$0")/.."

# Programs the tests need, as command:package. They are installed from Debian's
# packages as root or through sudo; elsewhere what is missing is named. The
# servers that Debian's packages may start are not used.
needs=(
    cc:gcc curl:curl initdb:postgresql pgbouncer:pgbouncer
    promtool:prometheus chromium:chromium chromedriver:chromium-driver npm:npm
)

# Debian keeps the programs of servers off the path.
has() {
    local PATH=$PATH:/usr/sbin
    command -v "$1" || compgen -G "/usr/lib/postgresql/*/bin/$1"
}

missing=()
for need in "${needs[@]}"; do
    has "${need%%:*}" >/dev/null || missing+=("${need##*:}")
done
# One of the two serves as Redis.
has redis-server >/dev/null || has valkey-server >/dev/null || missing+=(redis-server)

can_install=
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    can_install=1 as_root=()
elif command -v apt-get >/dev/null && sudo -n true 2>/dev/null; then
    can_install=1 as_root=(sudo -n)
fi
install_packages() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@"
}

if ((${#missing[@]})); then
    [ "$can_install" ] || { echo "tests/run.sh: install these first: ${missing[*]}" >&2; exit 1; }
    "${as_root[@]}" apt-get update -qq
    install_packages "${missing[@]}"
fi
# The tests try Valkey beside Redis where Debian has it, which is not everywhere.
if [ "$can_install" ] && ! has valkey-server >/dev/null; then
    for package in valkey-server valkey; do
        apt-cache show "$package" >/dev/null 2>&1 || continue
        install_packages "$package" || echo "tests/run.sh: goes on without Valkey" >&2
        break
    done
fi
command -v cargo >/dev/null || { echo "tests/run.sh: install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) or later first" >&2; exit 1; }

# What looks for barriers in the console's pages.
axe=${CARGO_TARGET_DIR:-target}/axe
if [ ! -f "$axe/package/axe.min.js" ]; then
    mkdir -p "$axe"
    (cd "$axe" && npm pack --silent axe-core@4.14.1 && tar -xzf axe-core-*.tgz)
fi

# Most tests wait for a server, a disk or a lease, and few for a core.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((3 * $(nproc)))}

# The services under test are built before the tests that start them.
cargo build --all-features --bins --examples
if (($#)); then
    exec tests/postgres.sh tests/redis.sh cargo test --all-features --test it -- "$@"
fi
tests/postgres.sh tests/redis.sh cargo test --all-features --lib --tests
cargo test --all-features --doc

#!/bin/sh
# Installs with apt the Debian packages that attend needs, and only those that are missing: when all are there it
# is silent and runs nothing. Usage: setup.sh GROUP ...: build (also to run), test, and for tests that are
# skipped without them proxies and image.
set -eu

build="gcc libc6-dev make pkg-config libmicrohttpd-dev libuv1-dev libjansson-dev libpcre2-dev libutf8proc-dev
       libopenblas0-pthread curl ca-certificates python3 python3-pip"
test="libcmocka-dev clang clang-tidy clang-format"
proxies="nginx-light haproxy"
image="buildah debootstrap"

want=
for group; do
    case $group in
    build) want="$want $build" ;;
    test) want="$want $test" ;;
    proxies) want="$want $proxies" ;;
    image) want="$want $image" ;;
    *) echo "setup.sh: no group of packages is called $group" >&2; exit 2 ;;
    esac
done

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
    # Not Debian: believe the system if the compiler finds the libraries, else say what is needed.
    if pkg-config --exists libmicrohttpd libuv jansson libpcre2-8 libutf8proc 2> /dev/null; then
        exit 0
    fi
    echo "attend: this system has no apt; install what it calls these Debian packages:" $want >&2
    exit 1
fi

missing=
for package in $want; do
    state=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2> /dev/null | head -n 1) || true
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo > /dev/null; then
        echo "attend: these packages are missing and only root can install them: apt-get install$missing" >&2
        exit 1
    fi
    as_root=sudo
fi

mkdir -p build
log=build/apt.log
echo "attend: installing with apt:$missing"
install() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get "$@" >> "$log" 2>&1
}
: > "$log"
if ! { install update && install install -y --no-install-recommends $missing; }; then
    tail -n 20 "$log" >&2
    echo "attend: apt failed; all of what it said is in $log" >&2
    exit 1
fi

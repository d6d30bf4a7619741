#!/bin/sh
# Makes the root file system of the container image: the program, the libraries that it loads, and the few files that a
# process expects. Usage: image.sh PROGRAM FOLDER
set -eu
program=$1 root=$2

# OpenBLAS is loaded by name at run time, so that ldd does not see it.
openblas=$(ldconfig -p | awk '$1 == "libopenblas.so.0" { print $NF; exit }')
[ -n "$openblas" ] || { echo "image.sh: libopenblas.so.0 is not installed" >&2; exit 1; }

mkdir -p "$root/usr/bin" "$root/etc/ssl/certs" "$root/models" "$root/usr/share/doc/attend"
install -m 755 -s "$program" "$root/usr/bin/attend"
install -m 644 LICENSE "$root/usr/share/doc/attend/"
for library in "$openblas" $(ldd "$program" "$openblas" | grep -o '/[^ ]*\.so[^ ]*' | sort -u); do
    case $library in *:) continue ;; esac # ldd's headings
    mkdir -p "$root${library%/*}"
    cp -L "$library" "$root$library"
done
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
echo 'root:x:0:0:root:/:/usr/bin/attend
attend:x:65532:65532:attend:/:/usr/bin/attend' > "$root/etc/passwd"
echo 'root:x:0:
attend:x:65532:' > "$root/etc/group"

#!/bin/sh
# Looks for new inputs with libFuzzer (clang) under AddressSanitizer, SECONDS for each target. What crashes is written to
# build/fuzz/crash-*: when the fault is mended, the input goes into tests/fuzz/corpus/NAME as its test.
set -eu
seconds=$1
make --no-print-directory -j"$(nproc)" BUILD=build/fuzz MODE=asan CC=clang CFLAGS=-fsanitize=fuzzer-no-link \
    build/fuzz/asan/libattend.a $(for f in tests/lib/*.c; do n=${f#tests/lib/}; echo "build/fuzz/asan/obj/tests/lib/${n%.c}.o"; done)
libraries="-lcmocka $(pkg-config --libs libmicrohttpd libuv jansson libpcre2-8 libutf8proc) -lm -lpthread -ldl"
failed=0
for source in tests/fuzz/fuzz_*.c; do
    name=${source#tests/fuzz/fuzz_} name=${name%.c}
    program=build/fuzz/fuzz_$name
    clang -std=c11 -D_GNU_SOURCE -I. -g -O1 -fsanitize=fuzzer,address,undefined -o "$program" "$source" \
        build/fuzz/asan/obj/tests/lib/*.o build/fuzz/asan/libattend.a $libraries
    mkdir -p "build/fuzz/found/$name"
    echo "fuzz: $name, $seconds s"
    "$program" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=10 -artifact_prefix=build/fuzz/ -print_final_stats=0 \
        -verbosity=0 "build/fuzz/found/$name" "tests/fuzz/corpus/$name" || failed=1
done
exit $failed

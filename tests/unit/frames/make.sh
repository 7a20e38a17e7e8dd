#!/bin/sh
# Builds the fixtures of the unwind tests: make.sh SOURCES DIRECTORY STAMP. One source, with its unwind tables in every
# place that they can be in.
set -eu
src=$(cd "$1" && pwd)
mkdir -p "$2"
stamp=$PWD/$3
cd "$2"
rm -rf ./*
cc="${CC:-gcc} -O2 -fPIC -shared -nostdlib -fomit-frame-pointer -fno-stack-protector"
none="-fno-asynchronous-unwind-tables -fno-unwind-tables -g"

$cc "$src/code.c" -o plain.so
$cc -Wl,--no-eh-frame-hdr "$src/code.c" -o no-header.so
$cc $none "$src/code.c" -o debug.so
$cc $none -gz=zlib "$src/code.c" -o packed.so
$cc -O0 -fno-omit-frame-pointer -fno-asynchronous-unwind-tables -fno-unwind-tables "$src/code.c" -o nothing.so

# .debug_frame in a debug file, found by the build ID below its own root.
id=0011223344556677889900112233445566778899
$cc $none -Wl,--build-id=0x$id "$src/code.c" -o whole.so
mkdir -p root/lib root/usr/lib/debug/.build-id/00
objcopy --only-keep-debug whole.so "root/usr/lib/debug/.build-id/00/${id#00}.debug"
strip -o root/lib/split.so whole.so
touch "$stamp"

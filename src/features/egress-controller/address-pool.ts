import type { Cidr } from "#base/ip";
import type { Draft } from "#kube/client";
import {
  type AddressPool,
  COIL_FINALIZER,
  EGRESS_NAMESPACE_LABEL,
  egressLabels,
  egressPoolName,
  outsideOfRanges,
  type SpecifiedEgress,
} from "#kube/coil";

/**
 * Pure: the pool of an Egress with `spec.addresses`, whose blocks are single addresses; `undefined` without. Nobody owns it: an object without a
 * namespace cannot have an owner in one.
 */
export function addressPoolOf({
  metadata: { name, namespace = "" },
  spec,
}: SpecifiedEgress): Draft<AddressPool> | undefined {
  if (spec.addresses === undefined || spec.addresses.length === 0) return undefined;
  return {
    metadata: {
      name: egressPoolName({ namespace, name }),
      labels: { ...egressLabels(name), [EGRESS_NAMESPACE_LABEL]: namespace },
      finalizers: [COIL_FINALIZER],
    },
    spec: { blockSizeBits: 0, subnets: spec.addresses },
  };
}

/** The Egress of a pool, as `NAMESPACE/NAME`; `undefined` for a pool of another maker. */
export function egressOfPool({ metadata: { name, labels = {} } }: Pick<AddressPool, "metadata">): string | undefined {
  const namespace = labels[EGRESS_NAMESPACE_LABEL];
  const egress = labels["app.kubernetes.io/instance"];
  if (namespace === undefined || egress === undefined) return undefined;
  return egressPoolName({ namespace, name: egress }) === name ? `${namespace}/${egress}` : undefined;
}

/** Returns why an Egress may not have its addresses, as a sentence; `undefined` if it may. A cluster without webhooks stores any. */
export function notAllowed({ spec }: SpecifiedEgress, ranges: readonly Cidr[]): string | undefined {
  const [first] = outsideOfRanges(spec.addresses ?? [], ranges);
  return first === undefined ? undefined : `${first.fault.field}: ${first.fault.message}`;
}

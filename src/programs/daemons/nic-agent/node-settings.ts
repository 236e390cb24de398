import { defaultNic, gatewaysOf, isDefaultRoute, PRIMARY_NIC, routeMetric } from "#features/nic";
import type { NodeSettings } from "#features/nic-cni";

/** The settings of the node that count where a network's configuration says nothing, from the flags. Pure. */
export function nodeSettings({
  ovsdb,
  integrationBridge: bridge,
  plugMode,
  vmOwnerUid,
  nsPrefix,
}: {
  readonly ovsdb: string;
  readonly integrationBridge: string;
  readonly plugMode: NodeSettings["plugMode"];
  /** 0: root. */
  readonly vmOwnerUid: number;
  readonly nsPrefix: string;
}): NodeSettings {
  return {
    ...{ ovsdb, bridge, plugMode, nsPrefix },
    // Without one devices are root's, and the plan of a release before says the same.
    ...(vmOwnerUid === 0 ? {} : { vmOwnerUid }),
    routing: { primary: PRIMARY_NIC, defaultNic, gatewaysOf, isDefaultRoute, routeMetric },
  };
}

import { FOLLOWED_SERVERS_NOTE } from "../../shared/api-server-flag/index.ts";
import { controllerProgramMetrics, runController } from "../../shared/controller/index.ts";
import { coilLogFlags, endpointFlags, kubeFlags } from "../../shared/daemon/index.ts";
import { ipamFlags, ipamLeader, POOL_WEBHOOKS, poolMetrics } from "../../shared/ipam-control/index.ts";
import { recordFlag } from "../../shared/pass-record/index.ts";
import { defineProgram } from "../../shared/program/index.ts";
import { serveWebhooks, webhookFlags, webhookMetrics } from "../../shared/webhooks/index.ts";

const flags = {
  ...endpointFlags(":9386", ":9387"),
  ...ipamFlags,
  ...webhookFlags("ipam"),
  ...recordFlag,
  ...kubeFlags,
  ...coilLogFlags,
};

/** `coil-ipam-controller` (docs/spec/pod-network.md#3). */
export const coilIpamController = defineProgram({
  name: "coil-ipam-controller",
  summary: "Carves address blocks out of AddressPools and allots them to the nodes that request them.",
  flags,
  notes: [
    "Run two replicas: one leads (Lease kube-system/coil-ipam-leader), and the other waits. Both serve the webhooks of AddressPools.",
    "A replica is not ready until it can serve webhooks. In a cluster without webhook configurations set --webhook-addr=none.",
    FOLLOWED_SERVERS_NOTE,
  ],
  metrics: [poolMetrics, webhookMetrics, controllerProgramMetrics],
  run: ({ values, signal }) =>
    runController({ name: "coil-ipam-controller", values, signal }, [ipamLeader(values)], (replica) =>
      serveWebhooks(replica, [{ ...POOL_WEBHOOKS, address: values.webhookAddr }], values),
    ),
});

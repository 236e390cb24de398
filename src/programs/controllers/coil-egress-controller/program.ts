import { FOLLOWED_SERVERS_NOTE } from "../../shared/api-server-flag/index.ts";
import { controllerProgramMetrics, runController } from "../../shared/controller/index.ts";
import { coilLogFlags, endpointFlags, kubeFlags } from "../../shared/daemon/index.ts";
import { egressController, egressFlags } from "../../shared/egress-control/index.ts";
import { recordFlag } from "../../shared/pass-record/index.ts";
import { defineProgram } from "../../shared/program/index.ts";
import { serveWebhooks, webhookFlags, webhookMetrics } from "../../shared/webhooks/index.ts";

const flags = {
  ...endpointFlags(":9396", ":9397"),
  ...webhookFlags("egress"),
  ...egressFlags,
  ...recordFlag,
  ...kubeFlags,
  ...coilLogFlags,
};

/** `coil-egress-controller` (docs/spec/pod-network.md#8). */
export const coilEgressController = defineProgram({
  name: "coil-egress-controller",
  summary: "Gives each Egress its routers, their Service, disruption budget, account and rights.",
  flags,
  notes: [
    "Run two replicas: one leads (Lease kube-system/coil-egress-leader), and the other waits. Both serve the webhooks of Egresses.",
    "A replica is not ready until it can serve webhooks. In a cluster without webhook configurations set --webhook-addr=none.",
    "Environment: COIL_POD_NAMESPACE and COIL_POD_NAME, this program's own pod, whose first container names the image of the routers. Not needed with --image.",
    FOLLOWED_SERVERS_NOTE,
  ],
  metrics: [webhookMetrics, controllerProgramMetrics],
  run: async ({ values, signal }) => {
    const { leader, webhooks } = egressController(values);
    return runController({ name: "coil-egress-controller", values, signal }, [leader], (replica) =>
      serveWebhooks(replica, [{ ...webhooks, address: values.webhookAddr }], values),
    );
  },
});

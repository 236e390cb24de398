import { FOLLOWED_SERVERS_NOTE } from "../../shared/api-server-flag/index.ts";
import { controllerProgramMetrics, runController } from "../../shared/controller/index.ts";
import { coilLogFlags, endpointFlags, kubeFlags } from "../../shared/daemon/index.ts";
import { egressController, egressFlags } from "../../shared/egress-control/index.ts";
import { ipamFlags, ipamLeader, POOL_WEBHOOKS, poolMetrics } from "../../shared/ipam-control/index.ts";
import { recordFlag } from "../../shared/pass-record/index.ts";
import { defineProgram } from "../../shared/program/index.ts";
import { serveWebhooks, webhookAddrFlag, webhookFlags, webhookMetrics } from "../../shared/webhooks/index.ts";

const flags = {
  ...endpointFlags(":9386", ":9387"),
  ...ipamFlags,
  ...egressFlags,
  ...webhookFlags("ipam", "egress"),
  egressWebhookAddr: webhookAddrFlag("egress-webhook-addr", "egress"),
  ...recordFlag,
  ...kubeFlags,
  ...coilLogFlags,
};

/** `coil-controller`: the controllers of address management and of Egresses in one process (docs/spec/pod-network.md#1). */
export const coilController = defineProgram({
  name: "coil-controller",
  summary: "coil-ipam-controller and coil-egress-controller in one process, with one set of endpoints.",
  flags,
  notes: [
    "Run two replicas. Each part has its own Lease, kube-system/coil-ipam-leader and coil-egress-leader, so that this program and the two that it replaces can run at once. The loss of either ends the program.",
    "Each part has the webhooks, the Service and the Secret of its own program. A certificate of --cert-dir serves both, and needs the names of both Services.",
    "Environment: as coil-egress-controller.",
    FOLLOWED_SERVERS_NOTE,
  ],
  metrics: [poolMetrics, webhookMetrics, controllerProgramMetrics],
  run: async ({ values, signal }) => {
    const { leader, webhooks } = egressController(values);
    const served = [
      { ...POOL_WEBHOOKS, address: values.webhookAddr },
      { ...webhooks, address: values.egressWebhookAddr },
    ];
    return runController({ name: "coil-controller", values, signal }, [ipamLeader(values), leader], (replica) =>
      serveWebhooks(replica, served, values),
    );
  },
});

import { FOLLOWED_SERVERS_NOTE } from "../../shared/api-server-flag/index.ts";
import { controllerProgramMetrics, runController } from "../../shared/controller/index.ts";
import { endpointFlags, kubeFlags, logFlags } from "../../shared/daemon/index.ts";
import {
  type NicMetrics,
  nicFlags,
  nicInformers,
  nicLeader,
  nicMetrics,
  nicWebhookHandlers,
} from "../../shared/nic-control/index.ts";
import { recordFlag } from "../../shared/pass-record/index.ts";
import { defineProgram } from "../../shared/program/index.ts";
import { serveWebhooks, webhookFlags, webhookMetrics } from "../../shared/webhooks/index.ts";

const flags = {
  ...nicFlags,
  ...endpointFlags(":9406", ":9407"),
  ...webhookFlags("nic"),
  ...recordFlag,
  ...kubeFlags,
  ...logFlags,
};

/** `nic-controller` (docs/spec/vpc-nics.md#5). */
export const nicController = defineProgram({
  name: "nic-controller",
  summary:
    "Gives pods with VPC NICs their ports of Neutron or Alcor: makes them, binds them to the pod's node, and deletes them after it.",
  flags,
  notes: [
    "Run two replicas: one leads (Lease kube-system/nic-controller-leader), and the other waits. Both serve the webhooks of pods.",
    "A replica is not ready until it can serve webhooks. In a cluster without webhook configurations set --webhook-addr=none.",
    "The credentials are read again when the file changes, and are never logged. Nodes need none.",
    "Ports carry the cluster's id in their description: the uid of the namespace kube-system, which no other cluster has, unless --cluster-id or NicClaims of an earlier release say another.",
    "A collection of ports without a claim leaves one that is ACTIVE on a host, unless this process has had its claim.",
    "A port that a user made is never deleted; it is given back as it was.",
    "A pod can name a security group by id if it is of the VPC's project or shared with it; the policy's default groups may be of any project.",
    "Where a binding of the policy names the project of a VPC, a pod can name only ports of that project.",
    FOLLOWED_SERVERS_NOTE,
  ],
  metrics: [nicMetrics, webhookMetrics, controllerProgramMetrics],
  run: async ({ values, signal }) => {
    let parts: { readonly informers: ReturnType<typeof nicInformers>; readonly metrics: NicMetrics } | undefined;
    const leader = nicLeader(values, () => {
      if (parts === undefined) throw new Error("a replica leads before it is set up");
      return parts;
    });
    return runController({ name: "nic-controller", values, signal }, [leader], (replica) => {
      const informers = nicInformers(replica);
      parts = { informers, metrics: nicMetrics(replica.registry) };
      const handlers = nicWebhookHandlers(replica, informers, values.controllerUser);
      serveWebhooks(replica, [{ part: "nic", handlers: () => handlers, address: values.webhookAddr }], values);
    });
  },
});

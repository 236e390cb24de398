import { nicAdmissionHandlers } from "#features/nic";
import { findObject, resources } from "#kube/client";
import type { AdmissionHandler } from "#kube/webhook";
import type { ControllerReplica } from "../controller/index.ts";
import { type NicInformers, namespaceView } from "./cluster.ts";

/** The handlers of the webhooks of pods. They read caches, and a namespace that is not in them yet from the API server; never a provider. */
export function nicWebhookHandlers(
  { api }: Pick<ControllerReplica, "api">,
  { claims, namespaces, policies, cluster }: NicInformers,
  controllerUser: string,
): Readonly<Record<string, AdmissionHandler>> {
  return nicAdmissionHandlers({
    controllerUser,
    world: async (namespace, { signal }) => {
      await Promise.all([claims.synced, namespaces.synced, policies.synced]);
      const isKnown = namespace === "" || cluster.namespace(namespace) !== undefined;
      const read = isKnown ? undefined : await findObject(api, resources.namespaces, { name: namespace }, { signal });
      return {
        policy: cluster.policy(),
        namespaces: {
          get: (name) =>
            cluster.namespace(name) ?? (name === namespace && read !== undefined ? namespaceView(read) : undefined),
        },
        claims: { get: cluster.claim, values: cluster.claims },
      };
    },
  });
}

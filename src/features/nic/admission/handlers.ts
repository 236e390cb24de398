import type { AdmissionHandler } from "#kube/webhook";
import { mutatePod } from "./mutate.ts";
import type { NicWorld } from "./reviewed-pod.ts";
import { validatePod } from "./validate-pod.ts";

/** The paths of the webhooks of pods. */
export const NIC_WEBHOOK_PATHS = { mutate: "/mutate-v1-pod", validate: "/validate-v1-pod" } as const;

/** The collaborators of the webhooks. */
export interface NicAdmissionDeps {
  /**
   * The cluster as it is known now, in which the namespace of a request is known. It may wait for caches and for the API server, and fails
   * a review by throwing. It never asks a provider of VPCs.
   */
  readonly world: (namespace: string, options: { readonly signal: AbortSignal }) => Promise<NicWorld>;
  /** The user name of the controller, such as `system:serviceaccount:kube-system:nic-controller`. */
  readonly controllerUser: string;
}

/** The handlers of the webhooks of pods, by path. */
export function nicAdmissionHandlers({
  world,
  controllerUser,
}: NicAdmissionDeps): Readonly<Record<string, AdmissionHandler>> {
  return {
    [NIC_WEBHOOK_PATHS.mutate]: async (request, options) =>
      mutatePod(request, await world(request.namespace ?? "", options)),
    [NIC_WEBHOOK_PATHS.validate]: async (request, options) =>
      validatePod(request, {
        world: await world(request.namespace ?? "", options),
        controllerUser,
        isProven: options.isProven,
      }),
  };
}

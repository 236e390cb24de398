import { nicLimit, planPodSurface, podSurface, readPodNics, tenantOf, updateFaults, vpcAccess } from "#features/nic";
import type { NicRules } from "#features/nic-controller";
import { DEFAULT_VPC_ANNOTATION } from "#kube/nic";

/** The rules of pods' NICs that the webhooks have too: a pod that was stored without them is judged the same. */
export const nicRules: NicRules = {
  wishOf: (pod, namespace) => readPodNics(pod, { defaultVpc: namespace?.annotations?.[DEFAULT_VPC_ANNOTATION] }),
  allow: (policy, wish, namespace, view) => {
    const access = vpcAccess(policy, wish.vpc, namespace);
    if (!access.isAllowed) {
      const [vpc, name] = [JSON.stringify(wish.vpc), JSON.stringify(namespace)];
      const refused = `VPC ${vpc} is not available in namespace ${name}`;
      return { refused, ...(access.why === undefined ? {} : { why: `${refused}: ${access.why}` }) };
    }
    const { flavor } = wish.vm ?? {};
    const vm = wish.vm === undefined ? undefined : { ...(flavor === undefined ? {} : { flavor }), rest: {} };
    const { maxNics, because } = nicLimit(policy, vm, tenantOf(policy, namespace, view));
    if (wish.nics.length > maxNics) return { refused: `${wish.nics.length} NICs: ${because} at most ${maxNics}` };
    return { provider: access.binding?.provider, projectID: access.binding?.projectID };
  },
  change: (policy, before, after) =>
    updateFaults({ nics: before }, { nics: after }, { hotplug: policy.hotplug === true, allNamed: true }).map(
      ({ field, message }) => `${field}: ${message}`,
    ),
  tenantOf,
  surface: (pod, claim, now) => planPodSurface(pod, podSurface(claim), { now }),
};

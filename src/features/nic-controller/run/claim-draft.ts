import type { Draft } from "#kube/client";
import {
  CLAIM_CLUSTER_LABEL,
  CLAIM_NODE_LABEL,
  CLAIM_POD_LABEL,
  type NicClaim,
  nodeLabelValue,
  PORTS_FINALIZER,
} from "#kube/nic";
import type { PodView, WantedNics } from "../world.ts";

/** The claim of a pod (docs/spec/vpc-nics.md#3.1). Pure. */
export function claimDraft(
  pod: PodView,
  wish: WantedNics,
  { clusterId, provider, projectID }: { clusterId: string; provider: string; projectID: string | undefined },
): Draft<NicClaim> {
  const { name, namespace = "", uid } = pod.metadata;
  const { nodeName } = pod.spec;
  return {
    apiVersion: "isthmus.dev/v1alpha1",
    kind: "NicClaim",
    metadata: {
      name: uid,
      namespace,
      labels: {
        ...labelOf(CLAIM_POD_LABEL, name),
        ...labelOf(CLAIM_CLUSTER_LABEL, clusterId),
        ...(nodeName === undefined ? {} : { [CLAIM_NODE_LABEL]: nodeLabelValue(nodeName) }),
      },
      finalizers: [PORTS_FINALIZER],
      ownerReferences: [{ apiVersion: "v1", kind: "Pod", name, uid, controller: true, blockOwnerDeletion: false }],
    },
    spec: {
      podName: name,
      podUID: uid,
      vpc: wish.vpc,
      provider,
      ...(projectID === undefined ? {} : { projectID }),
      nics: wish.nics.map((nic) => ({ ...nic })),
      ...(wish.vm === undefined ? {} : { vm: wish.vm.flavor === undefined ? {} : { flavor: wish.vm.flavor } }),
    },
  };
}

/** The most characters of a label's value. */
const MAX_LABEL_LENGTH = 63;

/** Names of pods can be longer than a label's value. */
function labelOf(key: string, value: string): Readonly<Record<string, string>> {
  const shown = value.slice(0, MAX_LABEL_LENGTH);
  return { [key]: shown === value ? value : shown.replace(/[^A-Za-z0-9]+$/, "") };
}

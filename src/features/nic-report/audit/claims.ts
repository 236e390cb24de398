import { isEqual } from "#base/collections";
import type { Pod } from "#kube/client";
import { CLAIM_NODE_LABEL, type NicClaim, nodeLabelValue } from "#kube/nic";
import type { NicFinding } from "./finding.ts";
import type { NicAuditRules } from "./rules.ts";

/** A pod in words. */
export function podText({ metadata: { namespace = "", name } }: Pod): string {
  return `pod ${namespace}/${name}`;
}

/** The claim's pod in words. */
export function claimText({ metadata: { namespace = "" }, spec: { podName } }: NicClaim): string {
  return `the NicClaim of pod ${namespace}/${podName}`;
}

/** A pod of which nothing runs any more. */
export function isOver({ status }: Pod): boolean {
  return status?.phase === "Succeeded" || status?.phase === "Failed";
}

/** Finds differences between pods and their claims. Pure. */
export function auditClaims(
  { pods, claims }: { readonly pods: readonly Pod[]; readonly claims: readonly NicClaim[] },
  rules: NicAuditRules,
): NicFinding[] {
  const byUid = new Map(claims.map((claim) => [claim.metadata.name, claim]));
  const uids = new Set(pods.map(({ metadata }) => metadata.uid));
  const leftovers = claims.filter(({ metadata }) => !uids.has(metadata.name));
  return [
    ...pods.flatMap((pod) => auditPod(pod, byUid.get(pod.metadata.uid), rules)),
    ...leftovers.map((claim): NicFinding => {
      const { phase = "no phase" } = claim.status ?? {};
      return {
        kind: "nic-claim-leftover",
        node: claim.status?.nodeName,
        text: `pod ${claim.metadata.namespace ?? ""}/${claim.spec.podName} with uid ${claim.metadata.name} does not exist, and its NicClaim does (${phase})`,
      };
    }),
  ];
}

function auditPod(pod: Pod, claim: NicClaim | undefined, rules: NicAuditRules): NicFinding[] {
  const found: NicFinding[] = [];
  const node = pod.spec?.nodeName;
  const find = (kind: NicFinding["kind"], what: string): void => void found.push({ kind, node, text: what });
  const wish = rules.wishOf(pod);
  const who = podText(pod);
  if (wish.kind === "none") return [];
  if (wish.kind === "host-network")
    find("nic-wish", `${who} has the network of its node and asks for a VPC: it gets no ports`);
  if (wish.kind === "faulty") {
    const faults = wish.faults.map(({ field, message }) => `${field}: ${message}`).join("; ");
    find("nic-wish", `${who} asks for NICs that it cannot have, and was stored without the webhook: ${faults}`);
  }
  if (wish.kind !== "wanted") return found;
  if (claim === undefined) {
    if (!isOver(pod) && pod.metadata.deletionTimestamp === undefined)
      find("nic-claim-missing", `${who} asks for NICs of VPC ${wish.vpc} and has no NicClaim`);
    return found;
  }
  const { spec, status, metadata } = claim;
  if (spec.vpc !== wish.vpc)
    find("nic-claim-spec", `${who} asks for VPC ${wish.vpc}, and its NicClaim has VPC ${spec.vpc}`);
  if (!isEqual(inOrder(spec.nics), inOrder(wish.nics)))
    find(
      "nic-claim-spec",
      `${who} asks for the NICs ${JSON.stringify(wish.nics)}, and its NicClaim has ${JSON.stringify(spec.nics)}`,
    );
  const label = metadata.labels?.[CLAIM_NODE_LABEL];
  // Names that are longer are not whole in the label.
  const names = [status?.nodeName, label === nodeLabelValue(node ?? "") ? node : label];
  const other = names.find((name) => name !== undefined && name !== node);
  if (other !== undefined || (node !== undefined && label === undefined && !isOver(pod)))
    find(
      "nic-claim-node",
      `${who} ${node === undefined ? "has no node" : `is on node ${node}`}, and its NicClaim names ${other ?? "none"}`,
    );
  if (metadata.deletionTimestamp === undefined && !isOver(pod)) {
    const lacks = rules.shownDifferences(pod, claim);
    if (lacks.length > 0)
      find("nic-shown", `${who} does not show what its NicClaim has: ${lacks.join(", ")} should change`);
  }
  return found;
}

/** The order of keys means nothing. */
function inOrder(nics: readonly object[]): unknown[] {
  return nics.map((nic) =>
    Object.entries(nic)
      .filter(([, value]) => value !== undefined)
      .sort(([one], [other]) => (one < other ? -1 : 1)),
  );
}

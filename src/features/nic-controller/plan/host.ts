import type { NicStatus } from "#kube/nic";
import { PROVIDER_HOST_ANNOTATION } from "#kube/nic";
import type { NodeView } from "../world.ts";
import { isPlumbed } from "./nic.ts";

/** The host of a pod's node at the provider. */
export interface ProviderHost {
  /** `undefined`: it is not known yet. */
  readonly host: string | undefined;
  /** True if it is only that of the ports that the pod uses, since the Node does not say it any more. */
  readonly isKept: boolean;
}

/**
 * The host that a Node's annotation names, else the Node's name (docs/spec/vpc-nics.md#5.5). A Node that somebody has deleted, or that kubelet has registered
 * again without the annotation, says nothing of ports that a pod uses: they stay where they are, and NICs that are added follow them. Nothing is bound for a
 * Node that is not known. Pure.
 */
export function providerHost({
  nodeName,
  node,
  inUse,
}: {
  readonly nodeName: string;
  readonly node: Pick<NodeView, "annotations"> | undefined;
  /** The NICs that the node has told to be plugged. */
  readonly inUse: readonly NicStatus[];
}): ProviderHost {
  const { annotations = {} } = node ?? {};
  const named = Object.hasOwn(annotations, PROVIDER_HOST_ANNOTATION) ? annotations[PROVIDER_HOST_ANNOTATION] : "";
  if (named !== undefined && named !== "") return { host: named, isKept: false };
  const works = inUse.find((nic) => isPlumbed(nic, undefined) && (nic.state === "Ready" || nic.reason === "PortDown"));
  if (works?.host !== undefined && works.host !== nodeName) return { host: works.host, isKept: true };
  return { host: node === undefined ? works?.host : nodeName, isKept: false };
}

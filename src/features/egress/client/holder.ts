import type { StoredMeta } from "#kube/client";

/** A pod whose status tells an address. */
export interface AddressHolder {
  readonly metadata: Pick<StoredMeta, "uid" | "creationTimestamp">;
  /** True if it is being deleted. */
  readonly isLeaving: boolean;
}

/**
 * Pure: the pod that has an address now, of those whose status tells it. Of two pods the one that is not being deleted has it, and of two
 * such the later one: an address is free only after its link is gone.
 */
export function holderOf<P extends AddressHolder>(pods: readonly P[]): P | undefined {
  const madeAt = ({ metadata }: P): number => Date.parse(String(metadata.creationTimestamp ?? "")) || 0;
  const order = (a: P, b: P): number =>
    Number(a.isLeaving) - Number(b.isLeaving) || madeAt(b) - madeAt(a) || (a.metadata.uid < b.metadata.uid ? -1 : 1);
  return pods.toSorted(order)[0];
}

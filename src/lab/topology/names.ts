/** Pure: the network namespace of a machine of a lab. {@link isNetnsOf} must know each machine. */
export function netnsOf(lab: string, machine: string): string {
  return `isthmus-${lab}-${machine}`;
}

/** Pure: the beginning of the names of the pods' network namespaces, to which a kubelet adds its node and eight hexadecimal digits. */
export function podNetnsPrefix(lab: string): string {
  return netnsOf(lab, "pod-");
}

/**
 * Pure: whether a lab makes a namespace of this name. Lab names may have hyphens, so those of the lab `a-b` begin like those of `a`; the whole
 * name decides.
 */
export function isNetnsOf(lab: string, name: string): boolean {
  const machines = "fabric|cp|internet|outside|wan[0-9]+|node[0-9]+";
  // Nodes on a cluster of somebody else have the lab and its run in their names.
  const pods = `pod-(isthmus-${lab}-[a-z0-9]+-)?node[0-9]+-[0-9a-f]{8}`;
  return new RegExp(`^${netnsOf(lab, `(${machines}|${pods})`)}$`).test(name);
}

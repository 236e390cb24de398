/**
 * The pods of a cluster of {@link Kubelets}, and waits for them.
 *
 * Owns: nothing. Does not know: what the pods are.
 *
 * ```ts
 * await rolledOut(cluster, "daemonset/coild");
 * await allReady(cluster);
 * const web = await pods(cluster, "--selector=app=web");
 * ```
 */
import { join } from "node:path";
import { NODES, type NodeName } from "#test/kubelet-node";
import type { Kubelets } from "#test/kubelets";
import { start, until } from "#test/lab";

/** The time that pods may take until they are ready on a busy machine, for kubectl. */
export const TIMEOUT = "--timeout=150s";
/** The same for {@link until}. */
export const SETTLE_MS = 150_000;

export interface SeenPod {
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    readonly uid: string;
    readonly deletionTimestamp?: string;
  };
  readonly spec: { readonly nodeName: string; readonly hostNetwork?: boolean };
  readonly status: {
    readonly podIP?: string;
    readonly podIPs?: readonly { readonly ip: string }[];
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
    readonly containerStatuses?: readonly { readonly containerID?: string; readonly restartCount: number }[];
  };
}

/** Makes the suite's image, in the folder of a cluster; its archive. */
export async function makeSuite(cluster: Kubelets): Promise<string> {
  const archive = join(cluster.folder, "isthmus.tar");
  const image = [join(import.meta.dirname, "../../run"), "image", "--level=1", `--output=${archive}`];
  const { code, stderr } = await start(image, { timeoutMs: 180_000 }).ended;
  if (code !== 0) throw new Error(`the image was not made: ${stderr}`);
  return archive;
}

/** Makes the suite's image and imports it on all nodes. */
export async function importSuite(cluster: Kubelets): Promise<void> {
  const archive = await makeSuite(cluster);
  for (const name of NODES) await cluster.node(name).importImage(archive);
}

/** The pods that flags of `kubectl get` select. */
export async function pods(cluster: Kubelets, ...selection: readonly string[]): Promise<readonly SeenPod[]> {
  const { items } = JSON.parse(await cluster.kubectl("get", "pods", "-o", "json", ...selection)) as {
    readonly items: readonly SeenPod[];
  };
  return items;
}

export const isReady = (pod: SeenPod): boolean =>
  pod.metadata.deletionTimestamp === undefined &&
  pod.status.conditions?.some(({ type, status }) => type === "Ready" && status === "True") === true;

/** Resolves when all pods of the cluster are ready. */
export function allReady(cluster: Kubelets): Promise<void> {
  let open: readonly string[] = [];
  const look = async (): Promise<boolean> => {
    const all = await pods(cluster, "--all-namespaces");
    open = all.filter((pod) => !isReady(pod)).map(({ metadata }) => metadata.name);
    return open.length === 0;
  };
  return until("all pods are ready", look, { deadlineMs: SETTLE_MS, everyMs: 1000, seen: () => open.join(" ") });
}

/** Resolves when a workload has been made or replaced on all nodes. */
export const rolledOut = (cluster: Kubelets, workload: string, namespace = "kube-system"): Promise<string> =>
  cluster.kubectl(`--namespace=${namespace}`, "rollout", "status", workload, TIMEOUT);

/** Ends a node like a loss of power, and starts it. Resolves when all of its containers are new ones, and all pods ready. */
export async function loseAndRestorePower(
  cluster: Kubelets,
  name: NodeName,
  reboot = (): Promise<void> => cluster.node(name).reboot(),
): Promise<void> {
  const ofNode = ["--all-namespaces", `--field-selector=spec.nodeName=${name}`];
  const known = (await pods(cluster, ...ofNode)).flatMap(({ status }) =>
    (status.containerStatuses ?? []).map(({ containerID }) => containerID),
  );
  await reboot();
  const isAnew = async (): Promise<boolean> =>
    (await pods(cluster, ...ofNode)).every(({ status }) =>
      status.containerStatuses?.every(({ containerID }) => containerID !== undefined && !known.includes(containerID)),
    );
  await until("its containers are new ones", isAnew, { deadlineMs: SETTLE_MS, everyMs: 1000 });
  await allReady(cluster);
}

/**
 * Pods of the tests under real kubelets: servers that tell their names, clients that count, and a Service between them. All are of busybox.
 *
 * Owns: {@link workloads}, {@link LATER} and their ports. Does not know: the cluster.
 *
 * ```ts
 * await cluster.apply(workloads([4]).map((one) => stringify(one)).join("---\n"));
 * ```
 */
import type { IpFamily } from "#base/ip";
import { BOX } from "#test/kubelet-runtime";

/** Servers, by the Deployment `web`. */
export const PODS = 10;
/** The NodePort of the Service `web`. */
export const NODE_PORT = 30_080;
/** The port of the DaemonSet `host-port`. */
export const HOST_PORT = 18_080;
const SERVICE = { 4: "10.96.0.80", 6: "fd00:96::80" } as const;
const PORT = 8080;

/** A shell of busybox as the command of a container. */
const shell = (script: string) => ({
  image: BOX,
  command: ["/bin/busybox", "sh", "-c", script],
});

/** Serves its name. It takes requests for a while after its end is announced, as endpoints go a little later. */
const SERVE = `trap 'busybox sleep 3; exit 0' TERM
busybox hostname >/www/index.html
busybox httpd -p ${PORT} -h /www
while :; do busybox sleep 0.2; done`;
const PROBE = { httpGet: { path: "/", port: PORT }, periodSeconds: 1 };
const SERVER = { ...shell(SERVE), readinessProbe: PROBE };
/** Writes a line for each request, to the Service's addresses in turn: who answered, or `lost: ADDRESS`. */
const client = (addresses: readonly string[]): string => `trap 'exit 0' TERM
while :; do
  for address in ${addresses.join(" ")}; do
    name=$(printf 'GET /index.html HTTP/1.0\\r\\n\\r\\n' | busybox timeout 3 busybox nc $address 80 | busybox tail -n 1)
    echo "\${name:-lost: $address}"
    busybox sleep 0.1
  done
done`;

function workload(kind: "Deployment" | "DaemonSet", app: string, container: object, spec: object = {}): object {
  const template = {
    metadata: { labels: { app } },
    spec: { terminationGracePeriodSeconds: 10, containers: [{ name: app, ...container }] },
  };
  const selector = { matchLabels: { app } };
  return { apiVersion: "apps/v1", kind, metadata: { name: app }, spec: { selector, template, ...spec } };
}

/** Returns the workloads of a cluster of two nodes whose Services have these families; the first one is the primary one. */
export function workloads(families: readonly IpFamily[]): readonly object[] {
  const addresses = families.map((family) => SERVICE[family]);
  return [
    workload("Deployment", "web", { ...SERVER }, { replicas: PODS }),
    workload("DaemonSet", "client", shell(client(addresses))),
    workload("DaemonSet", "host-port", {
      ...SERVER,
      ports: [{ containerPort: PORT, hostPort: HOST_PORT }],
    }),
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name: "web" },
      spec: {
        type: "NodePort",
        clusterIP: addresses[0],
        clusterIPs: addresses,
        ipFamilies: families.map((family) => `IPv${family}`),
        ipFamilyPolicy: families.length === 1 ? "SingleStack" : "RequireDualStack",
        selector: { app: "web" },
        ports: [{ port: 80, targetPort: PORT, nodePort: NODE_PORT }],
      },
    },
  ];
}

/** One more server on each node. */
export const LATER = workload("DaemonSet", "later", SERVER);

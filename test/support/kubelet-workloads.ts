/**
 * Pods of the tests under real kubelets: servers that tell their names, clients that count, and a Service between them. All are of busybox.
 *
 * Owns: {@link WORKLOADS}, {@link LATER} and their ports. Does not know: the cluster.
 *
 * ```ts
 * await cluster.apply(WORKLOADS.map((one) => stringify(one)).join("---\n"));
 * ```
 */
import { BOX } from "#test/kubelet-node";

/** Servers, by the Deployment `web`. */
export const PODS = 10;
/** Of the Service `web`. */
export const NODE_PORT = 30_080;
/** Of the DaemonSet `host-port`. */
export const HOST_PORT = 18_080;
const SERVICE = "10.96.0.80";
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
/** Writes a line for each request: who answered, or that nobody did. */
const CLIENT = `trap 'exit 0' TERM
while :; do
  name=$(printf 'GET /index.html HTTP/1.0\\r\\n\\r\\n' | busybox timeout 3 busybox nc ${SERVICE} 80 | busybox tail -n 1)
  echo "\${name:-lost}"
  busybox sleep 0.1
done`;

function workload(kind: "Deployment" | "DaemonSet", app: string, container: object, spec: object = {}): object {
  const template = {
    metadata: { labels: { app } },
    spec: { terminationGracePeriodSeconds: 10, containers: [{ name: app, ...container }] },
  };
  const selector = { matchLabels: { app } };
  return { apiVersion: "apps/v1", kind, metadata: { name: app }, spec: { selector, template, ...spec } };
}

/** What a cluster of two nodes runs. */
export const WORKLOADS = [
  workload("Deployment", "web", { ...SERVER }, { replicas: PODS }),
  workload("DaemonSet", "client", shell(CLIENT)),
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
      clusterIP: SERVICE,
      selector: { app: "web" },
      ports: [{ port: 80, targetPort: PORT, nodePort: NODE_PORT }],
    },
  },
];

/** One more server on each node. */
export const LATER = workload("DaemonSet", "later", SERVER);

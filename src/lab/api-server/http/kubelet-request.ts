import type { Duplex } from "node:stream";
import { ApiError, badRequest } from "../errors.ts";
import { asArray, asObject, asString, at } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";

/** The port of kubelets, unless the Node has another one. */
const KUBELET_PORT = 10_250;
const DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container";
/** Parameters of kube-apiserver, and their names for kubelets (kubernetes pkg/registry/core/pod/strategy.go). */
const STREAMS = { stdin: "input", stdout: "output", stderr: "error", tty: "tty" } as const;

/** The address of a node's kubelet. */
export interface KubeletPlace {
  readonly host: string;
  readonly port: number;
}

/** The server's connection to kubelets. */
export interface KubeletAccess {
  /** A connection to a node's address: direct, or through a tunnel. Rejects with an error that is shown to users. */
  readonly connect: (place: KubeletPlace) => Promise<Duplex>;
  /** PEM: the authority of kubelets' certificates, and the server's certificate and key for them. */
  readonly tls: { readonly ca: string; readonly cert: string; readonly key: string };
}

/** Pure: the kubelet of a node. Throws ApiError for a Node without an address. */
export function kubeletOf(node: KubeObject): KubeletPlace {
  const addresses = asArray(at(node, "status", "addresses")).map(asObject);
  const host = asString(addresses.find(({ type }) => type === "InternalIP")?.["address"]);
  if (host === "") {
    throw new ApiError("InternalError", `no preferred addresses found; known addresses: ${JSON.stringify(addresses)}`);
  }
  const port = at(node, "status", "daemonEndpoints", "kubeletEndpoint", "Port");
  return { host, port: typeof port === "number" && port > 0 ? port : KUBELET_PORT };
}

/** Pure: the path and query of the kubelet for exec in a pod. Throws ApiError `BadRequest`. */
export function execTarget(pod: KubeObject, params: URLSearchParams): string {
  const { namespace = "", name = "" } = pod.metadata;
  if (asString(at(pod, "spec", "nodeName")) === "") throw badRequest(`pod ${name} does not have a host assigned`);
  const path = ["exec", namespace, name, containerOf(pod, params.get("container") ?? "")]
    .map(encodeURIComponent)
    .join("/");
  const query = new URLSearchParams(params.getAll("command").map((word): [string, string] => ["command", word]));
  for (const [ours, theirs] of Object.entries(STREAMS)) {
    if (["1", "true"].includes(params.get(ours) ?? "")) query.set(theirs, "1");
  }
  return `/${path}?${query}`;
}

function containerOf(pod: KubeObject, requested: string): string {
  const { name = "", annotations = {} } = pod.metadata;
  const names = asArray(at(pod, "spec", "containers")).map((one) => asString(asObject(one)["name"]));
  const wanted =
    requested === "" ? (annotations[DEFAULT_CONTAINER] ?? (names.length === 1 ? (names[0] ?? "") : "")) : requested;
  if (wanted === "") {
    throw badRequest(`a container name must be specified for pod ${name}, choose one of: [${names.join(" ")}]`);
  }
  if (names.includes(wanted)) return wanted;
  throw badRequest(`container ${wanted} is not valid for pod ${name}`);
}

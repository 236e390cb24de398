import { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { openNetNs } from "#kernel/netns";
import { listenTcp } from "#kernel/socket";
import type { KubeletAccess } from "#lab/api-server";
import { makeCertificates } from "#lab/certificates";
import { connectInside, connectThrough } from "#lab/inside";
import { type Kubelet, serveExec } from "#lab/kubelet";
import type { LabNode, Topology } from "#lab/topology";
import type { LabTunnel } from "./tunnel.ts";

/** The usual port of kubelets. */
const PORT = 10_250;
const CONNECT_MS = 10_000;

/** PEM texts: the authority, and the certificate and key of the API server or of a kubelet. */
interface Identity {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

/** The certificates by which the embedded API server and the kubelets trust each other. */
export interface KubeletTrust {
  readonly apiServer: Identity;
  readonly kubelet: Identity;
}

export function makeKubeletTrust({ nodes }: Topology): KubeletTrust {
  const { ca, pairs } = makeCertificates("isthmus-lab-kubelet-ca", {
    apiServer: { usages: ["clientAuth"], commonName: "kube-apiserver", hosts: [] },
    kubelet: {
      usages: ["serverAuth"],
      commonName: "kubelet",
      hosts: nodes.flatMap((node) => node.addresses.map(String)),
    },
  });
  return { apiServer: { ca, ...pairs.apiServer }, kubelet: { ca, ...pairs.kubelet } };
}

/** The connection of the API server to kubelets: through the tunnel if there is one, else over the fabric. */
export function kubeletAccess(
  { apiServer }: KubeletTrust,
  { fabric }: Topology,
  tunnel: LabTunnel | undefined,
): KubeletAccess {
  return {
    tls: apiServer,
    connect: ({ host, port }) => {
      const place = { address: IpAddress.parse(host), port };
      const options = { timeoutMs: CONNECT_MS };
      return tunnel === undefined
        ? connectInside({ name: fabric }, place, options)
        : connectThrough(tunnel.frontend, place, options);
    },
  };
}

/** Serves commands for the pods of a node, on all addresses of the node. */
export function serveKubelet(
  kubelet: Kubelet,
  node: LabNode,
  trust: KubeletTrust,
  deps: { readonly log: Logger },
): Promise<AsyncDisposable> {
  using netns = openNetNs({ name: node.netns });
  return serveExec({
    fds: node.addresses.map((address) => listenTcp(address, PORT, { netns })),
    tls: trust.kubelet,
    placeOf: (request) => kubelet.placeOf(request),
    log: deps.log,
  });
}

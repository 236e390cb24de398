/**
 * A node that knows only a bind address of its API server, and a kubelet's `/exec` on it, behind the firewall of `Sides`.
 *
 * Owns: the embedded API server in the control plane's namespace, kubeconfigs, kubectl on either side. Does not know: what is
 * tested.
 *
 * ```ts
 * const world = await KubeletWorld.open(t, sides, server);
 * await world.onNode("https://10.255.255.1:6443", "create", "-f", world.file("node", node));
 * await world.admin("exec", "a", "--", "hostname");
 * ```
 */
import { createHash } from "node:crypto";
import type { TestContext } from "node:test";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { openNetNs } from "#kernel/netns";
import { listenTcp } from "#kernel/socket";
import { type ApiServer, startApiServer } from "#lab/api-server";
import { makeCertificates } from "#lab/certificates";
import { connectThrough } from "#lab/inside";
import { serveExec } from "#lab/kubelet";
import { type Outcome, type Running, start } from "#test/lab";
import type { ProxyServerProcess } from "#test/proxies";
import { BIND, BIND6, OVERLAP, type Side, type Sides } from "#test/tunnel-sides";

/** The users by token. */
const TOKENS = {
  root: { name: "admin", groups: ["system:masters"] },
  node: { name: "system:node:node1", groups: ["system:nodes"] },
  dev: { name: "dev", groups: [] },
};

/** See the module's comment. */
export class KubeletWorld {
  readonly api: ApiServer;
  readonly #sides: Sides;

  private constructor(api: ApiServer, sides: Sides) {
    this.api = api;
    this.#sides = sides;
  }

  static async open(t: TestContext, sides: Sides, server: ProxyServerProcess): Promise<KubeletWorld> {
    const { ca, pairs } = makeCertificates("kubelets", {
      apiServer: { usages: ["clientAuth"], commonName: "kube-apiserver", hosts: [] },
      kubelet: { usages: ["serverAuth"], commonName: "node1", hosts: ["192.0.2.11", "2001:db8::11"] },
    });
    const api = await startApiServer({
      listen: [
        { host: "127.0.0.1", port: 0 },
        { fd: listenerIn(sides, "master", OVERLAP.master, 6443), host: OVERLAP.master },
      ],
      tls: "self-signed",
      tlsHosts: [BIND, BIND6],
      tokens: TOKENS,
      log: nullLogger,
      kubelets: {
        tls: { ca, ...pairs.apiServer },
        connect: ({ host, port }) =>
          connectThrough(server.udsPath, { address: IpAddress.parse(host), port }, { timeoutMs: 10_000 }),
      },
      clock: systemClock,
    });
    t.after(() => api.stop());
    const pod = openNetNs({ name: sides.name("pod1") });
    const kubelet = await serveExec({
      fds: ["192.0.2.11", "2001:db8::11"].map((address) => listenerIn(sides, "node1", address, 10_250)),
      tls: { ca, ...pairs.kubelet },
      placeOf: ({ pod: name }) => (name === "a" ? { netns: pod, env: { WHO: "pod a" } } : undefined),
      log: nullLogger,
    });
    t.after(async () => {
      await kubelet[Symbol.asyncDispose]();
      pod[Symbol.dispose]();
    });
    return new KubeletWorld(api, sides);
  }

  /** A manifest's path. */
  file(name: string, object: object): string {
    return this.#sides.bed.write(`${name}.json`, JSON.stringify(object));
  }

  /** kubectl on this machine, without the tunnel. */
  admin(...args: string[]): Promise<Outcome> {
    return this.kubectl("root", ...args).ended;
  }

  /** The same with this text on standard input. */
  feed(input: Uint8Array, ...args: string[]): Promise<Outcome> {
    return start(["kubectl", `--kubeconfig=${this.#config("root", this.api.urls[0] ?? "")}`, ...args], { input }).ended;
  }

  /** kubectl on this machine as one of the users. */
  kubectl(who: keyof typeof TOKENS, ...args: string[]): Running {
    return start(["kubectl", `--kubeconfig=${this.#config(who, this.api.urls[0] ?? "")}`, ...args]);
  }

  /** kubectl inside the node, as the node, which knows only this address. */
  onNode(server: string, ...args: string[]): Running {
    const inside = ["ip", "netns", "exec", this.#sides.name("node1")];
    return start([...inside, "kubectl", `--kubeconfig=${this.#config("node", server)}`, ...args]);
  }

  #config(token: keyof typeof TOKENS, server: string): string {
    const name = createHash("sha256").update(`${token} ${server}`).digest("hex").slice(0, 12);
    return this.#sides.bed.write(`kubeconfig-${name}`, this.api.kubeconfig({ server, token, user: token }));
  }
}

function listenerIn(sides: Sides, side: Side, address: string, port: number): number {
  using netns = openNetNs({ name: sides.name(side) });
  return listenTcp(IpAddress.parse(address), port, { netns });
}

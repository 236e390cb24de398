import { execFileSync } from "node:child_process";
import { createServer as createHttpServer, type Server as HttpServer, type IncomingMessage } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import type { Server, Socket } from "node:net";
import { IpAddress } from "#base/ip";
import type { Kernel, NetNs, NetStack } from "#kernel/net";
import { type Nft, NftTransaction, openNft } from "#kernel/nft";
import { bindUdp, listenTcp } from "#kernel/socket";
import { TestDns, type Zone } from "./uplink-dns-server.ts";

/** docs/spec/uplink-proxy.md#15.2: the server that both WANs have. */
export const SERVER4 = IpAddress.parse("203.0.113.80");
export const SERVER6 = IpAddress.parse("2001:db8:80::80");

/**
 * The way in which a WAN fails: `drop-syn`: a SYN gets no answer; `swallow`: handshakes complete, then all data is dropped;
 * `drop-after`: the answers stop after some 100 KB; `reset`: every connection is reset; `lossy`: one packet in twenty is dropped, each way; `silent`: all packets are dropped.
 */
export type Fault = "drop-syn" | "swallow" | "drop-after" | "reset" | "lossy" | "silent";

export interface WanAddresses {
  /** Addresses of the WAN in the network of the node's uplink. */
  readonly gateway4: IpAddress;
  readonly gateway6: IpAddress;
  readonly dns4: IpAddress;
  readonly dns6: IpAddress;
}

const FAULTS = { family: "inet", name: "faults" } as const;
const COUNTS = { family: "inet", name: "counts" } as const;

/** One provider's network: gateway, DNS server, and a server that stands for the internet. */
export class Wan implements AsyncDisposable {
  readonly name: string;
  readonly netns: NetNs;
  readonly stack: NetStack;
  readonly addresses: WanAddresses;
  readonly dns: TestDns;
  /** Requests that the servers took: `192.0.2.10 GET /`. */
  readonly requests: string[] = [];
  readonly #nft: Nft;
  readonly #servers: Server[] = [];
  readonly #sockets = new Set<Socket>();

  constructor(
    kernel: Kernel,
    init: {
      readonly name: string;
      readonly netns: NetNs;
      readonly addresses: WanAddresses;
      readonly zone: Zone;
    },
  ) {
    this.name = init.name;
    this.netns = init.netns;
    this.addresses = init.addresses;
    this.stack = kernel.openStack(init.netns);
    this.#nft = openNft(init.netns);
    this.#count();
    const { dns4, dns6 } = init.addresses;
    this.dns = new TestDns(
      [dns4, dns6].map((address) => ({
        fd: bindUdp(address, 53, { netns: init.netns, freebind: true }),
        family: address.family,
      })),
      init.zone,
    );
  }

  /** A server in the WAN, on the address that both WANs have, unless another address is given. Closed with the WAN. */
  listen(server: Server, port: number, address: IpAddress = SERVER4): void {
    server.on("connection", (socket: Socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
    });
    server.listen({ fd: listenTcp(address, port, { netns: this.netns, freebind: true }) });
    this.#servers.push(server);
  }

  /** HTTP on port 80, and HTTPS on 443 with `tls`, both families; the answer has the client's address and the name of the WAN. */
  serveWeb(tls?: { readonly cert: string; readonly key: string }): void {
    const handler: Parameters<typeof createHttpServer>[1] = (request, response) => {
      this.requests.push(describe(request));
      response.end(`${this.name} ${plain(request.socket.remoteAddress)}\n`);
    };
    for (const address of [SERVER4, SERVER6]) {
      this.listen(createHttpServer(handler) as HttpServer, 80, address);
      if (tls !== undefined) this.listen(createHttpsServer(tls, handler), 443, address);
    }
  }

  /** Breaks the WAN until it is healed. Only TCP is affected, except with `silent`. */
  break(fault: Fault): void {
    const tx = new NftTransaction(FAULTS).replaceTable();
    tx.chain("in", { type: "filter", hook: "prerouting", priority: -300 });
    tx.chain("out", { type: "filter", hook: "output", priority: -300 });
    if (fault === "silent") tx.rule("in", "drop").rule("out", "drop");
    if (fault === "lossy")
      tx.rule("in", "numgen random mod 20 == 0 drop").rule("out", "numgen random mod 20 == 0 drop");
    if (fault === "drop-syn") tx.rule("in", "tcp flags & (syn | ack) == syn drop");
    // The last segment of a write has PSH; a packet longer than any bare ACK has payload too.
    if (fault === "swallow")
      tx.rule("in", "tcp flags & psh == psh drop").rule("in", "meta l4proto tcp meta length > 100 drop");
    if (fault === "drop-after") tx.rule("out", "meta l4proto tcp quota over 100000 bytes drop");
    if (fault === "reset") {
      tx.chain("refuse", { type: "filter", hook: "input", priority: -300 });
      tx.rule("refuse", "meta l4proto tcp reject with tcp reset");
    }
    this.#nft.run(tx);
  }

  heal(): void {
    this.#nft.run(new NftTransaction(FAULTS).removeTable());
  }

  /** TCP and UDP packets that came in from the node since the start. */
  get packets(): number {
    const args = [`--net=${this.netns.path}`, "nft", "list", "table", COUNTS.family, COUNTS.name];
    const found = /counter packets (\d+)/.exec(execFileSync("nsenter", args, { encoding: "utf8" }));
    return Number(found?.[1] ?? Number.NaN);
  }

  #count(): void {
    const tx = new NftTransaction(COUNTS).replaceTable();
    tx.chain("in", { type: "filter", hook: "prerouting", priority: -301 });
    tx.rule("in", "meta l4proto { tcp, udp } counter");
    this.#nft.run(tx);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await Promise.all(
      this.#servers.map((server) => new Promise<void>((resolve) => void server.close(() => resolve()))),
    );
    await this.dns[Symbol.asyncDispose]();
    this.#nft[Symbol.dispose]();
    this.stack[Symbol.dispose]();
  }
}

function describe(request: IncomingMessage): string {
  return `${plain(request.socket.remoteAddress)} ${request.method} ${request.url}`;
}

function plain(address = ""): string {
  return address.replace(/^::ffff:/, "");
}

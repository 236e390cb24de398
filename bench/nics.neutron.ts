/**
 * A Neutron in memory for the memory of a controller with many claims: one network, whose ports are bound and active at once. It is a peer of
 * nobody; its times mean nothing.
 */
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";
import { NeutronApi } from "#lab/neutron";

type Port = Record<string, unknown> & { readonly id: string };

const NETWORK = { id: crypto.randomUUID(), name: "vpc-1", project_id: "p", mtu: 1450 };
const SUBNET = {
  id: crypto.randomUUID(),
  name: "subnet-1",
  network_id: NETWORK.id,
  cidr: "10.0.0.0/8",
  ip_version: 4,
  gateway_ip: "10.0.0.1",
  allocation_pools: [{ start: "10.0.0.2", end: "10.255.255.254" }],
};
const BOUND = {
  "binding:vif_type": "ovs",
  "binding:vif_details": { ovs_hybrid_plug: false, bridge_name: "br-int", datapath_type: "netdev", port_filter: true },
};

/** Disposing ends it. */
export class MemoryNeutron extends NeutronApi implements AsyncDisposable {
  readonly #server: Server;
  readonly #ports = new Map<string, Port>();
  /** Ports by device, since every look names devices. */
  readonly #byDevice = new Map<string, Set<Port>>();
  #count = 0;

  private constructor(server: Server) {
    super(new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
    this.#server = server;
    server.on("request", (request, response) => void this.#answer(request, response));
  }

  static async start(): Promise<MemoryNeutron> {
    const server = createServer();
    await once(server.listen(0, "127.0.0.1"), "listening");
    return new MemoryNeutron(server);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, "close");
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = request.method === "GET" || request.method === "DELETE" ? {} : await json(request);
    const reply = this.#reply(request.method ?? "", new URL(request.url ?? "", this.url), body as object);
    response.writeHead(reply === undefined ? 404 : request.method === "POST" ? 201 : 200, {
      "content-type": "application/json",
    });
    response.end(JSON.stringify(reply ?? { NeutronError: { type: "NotFound", message: "it does not exist" } }));
  }

  #reply(method: string, { pathname, searchParams }: URL, body: object): object | undefined {
    const [, , kind = "", id] = pathname.split("/");
    if (kind === "networks") return { networks: [NETWORK] };
    if (kind === "subnets") return { subnets: [SUBNET] };
    if (kind === "extensions") return { extensions: [{ alias: "tag-ports-during-bulk-creation" }] };
    if (kind !== "ports") return { [kind]: [] };
    if (method === "POST") return { ports: (body as { ports: object[] }).ports.map((draft) => this.#make(draft)) };
    if (method === "GET") return { ports: this.#find(searchParams) };
    const port = this.#ports.get(id ?? "");
    if (port === undefined) return undefined;
    if (method === "DELETE") {
      this.#ports.delete(port.id);
      this.#byDevice.get(String(port["device_id"]))?.delete(port);
      return {};
    }
    Object.assign(port, (body as { port: object }).port, BOUND, { status: "ACTIVE" });
    return { port };
  }

  #make(draft: object): Port {
    this.#count += 1;
    const [high, low] = [this.#count >> 8, this.#count & 255];
    const mac = `fa:16:3e:00:${(high & 255).toString(16).padStart(2, "0")}:${low.toString(16).padStart(2, "0")}`;
    const host = (draft as Record<string, unknown>)["binding:host_id"];
    const port: Port = {
      id: crypto.randomUUID(),
      status: host === undefined ? "DOWN" : "ACTIVE",
      mac_address: mac,
      revision_number: 1,
      created_at: new Date().toISOString(),
      security_groups: [],
      ...(host === undefined ? { "binding:vif_type": "unbound" } : BOUND),
      ...draft,
      // The draft has the subnet alone.
      fixed_ips: [{ subnet_id: SUBNET.id, ip_address: `10.1.${high & 255}.${low}` }],
    };
    this.#ports.set(port.id, port);
    const device = String(port["device_id"]);
    const all = this.#byDevice.get(device) ?? new Set();
    all.add(port);
    this.#byDevice.set(device, all);
    return port;
  }

  #find(query: URLSearchParams): readonly Port[] {
    const devices = query.getAll("device_id");
    const ids = query.getAll("id");
    if (devices.length > 0) return devices.flatMap((device) => [...(this.#byDevice.get(device) ?? [])]);
    if (ids.length > 0) return ids.flatMap((one) => this.#ports.get(one) ?? []);
    const marker = query.get("marker");
    const all = [...this.#ports.values()].sort((one, other) => (one.id < other.id ? -1 : 1));
    const from = marker === null ? 0 : all.findIndex(({ id }) => id === marker) + 1;
    return all.slice(from, from + Number(query.get("limit") ?? all.length));
  }
}

import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { parseCredentials } from "#cloud/keystone";
import { CLOUDS, type VpcProvider } from "#cloud/vpc";
import { type FakeAnswer, FakeService, type GotRequest } from "./fake-service.ts";

type Fields = Readonly<Record<string, unknown>>;

export const SIMULATED = {
  project: "p1",
  vpc: "vpc-1",
  freeIp: "192.168.0.200",
  group: "9192a4d4-ffff-4ece-b3f0-8d36e3d88201",
  host: "node-1",
} as const;

const VPC = "9192a4d4-ffff-4ece-b3f0-8d36e3d88001";
const SUBNET = "9192a4d4-ffff-4ece-b3f0-8d36e3d88101";

/** The differences between the two APIs. */
interface Dialect {
  /** The part of the path before the name of a resource. */
  readonly prefix: string;
  /** The status and the type of a refusal because of a taken address, and of another revision. */
  readonly ipInUse: { readonly status: number; readonly type: string };
  readonly notFound: (what: string) => FakeAnswer;
  readonly refuse: (status: number, type: string, message: string) => FakeAnswer;
}

const NEUTRON: Dialect = {
  prefix: "/v2.0/",
  ipInUse: { status: 409, type: "IpAddressAlreadyAllocated" },
  notFound: (what) => neutronRefusal(404, "PortNotFound", `Port ${what} could not be found.`),
  refuse: neutronRefusal,
};

const ALCOR: Dialect = {
  prefix: `/project/${SIMULATED.project}/`,
  ipInUse: { status: 412, type: "Precondition Failed" },
  notFound: () => alcorRefusal(404, "Not Found", "no port"),
  refuse: alcorRefusal,
};

function neutronRefusal(status: number, type: string, message: string): FakeAnswer {
  return { status, body: { NeutronError: { type, message, detail: "" } } };
}

function alcorRefusal(status: number, error: string, message: string): FakeAnswer {
  return { status, body: { status, error, message } };
}

/** A cloud of one VPC in memory behind HTTP, with the paths and bodies of the API of a kind of cloud, and a provider of that kind that asks it. */
export class CloudSimulator implements AsyncDisposable {
  readonly provider: VpcProvider;
  readonly vpc = SIMULATED.vpc;
  readonly projectId = SIMULATED.project;
  readonly freeIp = SIMULATED.freeIp;
  readonly group = SIMULATED.group;
  readonly host = SIMULATED.host;
  readonly #service: FakeService;
  readonly #dialect: Dialect;
  readonly #ports = new Map<string, Fields>();
  #isAway = false;
  #count = 0;

  private constructor(service: FakeService, kind: "neutron" | "alcor") {
    this.#service = service;
    this.#dialect = kind === "neutron" ? NEUTRON : ALCOR;
    service.answer = (request) => this.#answer(request);
    const access = parseCredentials(`clouds: {a: {auth_type: none, auth: {endpoint: '${service.url.origin}'}}}\n`);
    const config = kind === "neutron" ? {} : { projectID: SIMULATED.project };
    const cloud = CLOUDS.find(({ type }) => type === kind);
    if (cloud === undefined) throw new Error(`no cloud is a ${kind}`);
    this.provider = cloud.open({ clock: systemClock, log: nullLogger }, { name: kind, config, access });
  }

  /** Opens the simulator of a kind of cloud. The caller disposes of it, which also ends its provider. */
  static async open(kind: "neutron" | "alcor"): Promise<CloudSimulator> {
    return new CloudSimulator(await FakeService.open(() => "cut"), kind);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.provider[Symbol.asyncDispose]();
    await this.#service[Symbol.asyncDispose]();
  }

  /** While it is away, connections end without an answer. */
  readonly setAway = (isAway: boolean): void => {
    this.#isAway = isAway;
  };

  #answer({ method, path, body, headers }: GotRequest): FakeAnswer {
    if (this.#isAway) return "cut";
    const { pathname, searchParams } = new URL(path, "http://cloud");
    const { prefix } = this.#dialect;
    if (!pathname.startsWith(prefix)) return this.#dialect.refuse(400, "HTTPBadRequest", `no path ${pathname}`);
    const [resource = "", id] = pathname.slice(prefix.length).split("/");
    const fixed = this.#fixed(resource, searchParams);
    if (fixed !== undefined) return { status: 200, body: fixed };
    if (method === "POST") return this.#create(body as Fields);
    if (id === undefined) return this.#list(searchParams);
    const port = this.#ports.get(id);
    if (port === undefined) return this.#dialect.notFound(id);
    if (method === "GET") return { status: 200, body: { port } };
    if (method === "DELETE") {
      this.#ports.delete(id);
      return { status: 204 };
    }
    return this.#change(port, (body as { readonly port: Fields }).port, String(headers["if-match"] ?? ""));
  }

  /** The answers about objects that do not change. */
  #fixed(resource: string, query: URLSearchParams): Fields | undefined {
    const byName = (list: readonly Fields[]): readonly Fields[] =>
      list.filter((one) =>
        ["id", "name"].every((key) => !query.has(key) || query.getAll(key).includes(String(one[key]))),
      );
    const network = { id: VPC, name: SIMULATED.vpc, project_id: SIMULATED.project, mtu: 1400 };
    const subnet = { id: SUBNET, name: "subnet-1", network_id: VPC, cidr: "192.168.0.0/24", ip_version: 4 };
    switch (resource) {
      case "vpcs":
      case "networks":
        return { [resource]: byName([network]) };
      case "subnets":
        return { subnets: [{ ...subnet, gateway_ip: "192.168.0.1" }] };
      case "security-groups":
        return { security_groups: byName([{ id: SIMULATED.group, name: "web", project_id: SIMULATED.project }]) };
      case "extensions":
        return { extensions: [{ alias: "standard-attr-tag" }, { alias: "tag-ports-during-bulk-creation" }] };
      case "agents":
        return { agents: [{ id: "a1", host: SIMULATED.host, agent_type: "Open vSwitch agent", alive: true }] };
      default:
        return undefined;
    }
  }

  #create(body: Fields): FakeAnswer {
    const drafts = (body["ports"] ?? [body["port"]]) as readonly Fields[];
    const taken = drafts.some((draft) => ipsOf(draft).some((ip) => this.#hasIp(ip)));
    if (taken) {
      const { status, type } = this.#dialect.ipInUse;
      return this.#dialect.refuse(status, type, "IP address already allocated in subnet");
    }
    const ports = drafts.map((draft) => this.#made(draft));
    for (const port of ports) this.#ports.set(String(port["id"]), port);
    return { status: 201, body: body["ports"] === undefined ? { port: ports[0] } : { ports } };
  }

  #made(draft: Fields): Fields {
    this.#count += 1;
    const hex = this.#count.toString(16).padStart(2, "0");
    const wanted = ipsOf(draft)[0];
    return bound({
      id: `9192a4d4-0000-4ece-b3f0-8d36e3d880${hex}`,
      status: "DOWN",
      mac_address: `fa:16:3e:00:00:${hex}`,
      revision_number: 1,
      created_at: "2026-01-01T00:00:00Z",
      security_groups: [],
      ...draft,
      fixed_ips: [{ subnet_id: SUBNET, ip_address: wanted ?? `192.168.0.${9 + this.#count}` }],
    });
  }

  #hasIp(ip: string): boolean {
    return [...this.#ports.values()].some((port) => ipsOf(port).includes(ip));
  }

  #list(query: URLSearchParams): FakeAnswer {
    const conditions = ["id", "device_id", "device_owner", "network_id", "name"].filter((key) => query.has(key));
    const tags = query.getAll("tags");
    const ports = [...this.#ports.values()].filter(
      (port) =>
        conditions.every((key) => query.getAll(key).includes(String(port[key]))) &&
        tags.every((tag) => (port["tags"] as readonly string[] | undefined)?.includes(tag)),
    );
    return { status: 200, body: { ports } };
  }

  #change(port: Fields, change: Fields, ifMatch: string): FakeAnswer {
    const revision = Number(port["revision_number"]);
    if (ifMatch !== "" && ifMatch !== `revision_number=${revision}`)
      return this.#dialect.refuse(412, "RevisionNumberConstraintFailed", `the revision is ${revision}`);
    const changed = bound({ ...port, ...change, revision_number: revision + 1 });
    this.#ports.set(String(port["id"]), changed);
    return { status: 200, body: { port: changed } };
  }
}

function ipsOf(port: Fields): readonly string[] {
  const fixed = (port["fixed_ips"] ?? []) as readonly { readonly ip_address?: string }[];
  return fixed.flatMap(({ ip_address: ip }) => ip ?? []);
}

function bound(port: Fields): Fields {
  const host = port["binding:host_id"] ?? "";
  const type = host === "" ? "unbound" : host === SIMULATED.host ? "ovs" : "binding_failed";
  return { ...port, "binding:host_id": host, ...("veth_name" in port ? {} : { "binding:vif_type": type }) };
}

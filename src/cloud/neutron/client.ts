import type { AbortOptions } from "#base/async";
import type { RestClient, RestRequest } from "#cloud/rest";
import {
  type NeutronAgent,
  type NeutronNetwork,
  type NeutronPort,
  type NeutronQuota,
  type NeutronSecurityGroup,
  type NeutronSubnet,
  read,
} from "./objects.ts";

/** For how long a request for many ports may take, in milliseconds: a bulk of 60 took 33 s on a busy server. */
const BULK_TIMEOUT_MS = 60_000;
/** Ids in one query, so that the URL stays below 4 KiB (docs/spec/vpc-nics.md#5.3). */
export const MAX_IDS = 50;
/** Ports in one page of a list. */
export const PAGE_SIZE = 500;
/** Objects that a look-up by name reads: enough to see that a name is not unique. */
const NAMESAKES = 3;

/** What a port is made with; the names are the API's. */
export interface PortDraft {
  readonly network_id: string;
  readonly project_id?: string;
  readonly name: string;
  readonly device_id: string;
  readonly device_owner: string;
  readonly description: string;
  readonly admin_state_up?: boolean;
  readonly fixed_ips?: readonly { readonly subnet_id?: string; readonly ip_address?: string }[];
  readonly mac_address?: string;
  readonly security_groups?: readonly string[];
  readonly tags?: readonly string[];
  readonly "binding:host_id"?: string;
  readonly "binding:vnic_type"?: "normal";
}

/** What is changed of a port; the names are the API's. */
export type PortChange = Partial<
  Pick<PortDraft, "device_id" | "device_owner" | "binding:host_id" | "name" | "admin_state_up" | "security_groups">
>;

/** Which ports a list has: all conditions hold. */
export interface PortFilter {
  /** Any of these, at most {@link MAX_IDS}. */
  readonly deviceIds?: readonly string[];
  /** Any of these, at most {@link MAX_IDS}. */
  readonly ids?: readonly string[];
  readonly deviceOwner?: string;
  readonly name?: string;
  readonly tag?: string;
  readonly networkId?: string;
}

/** The fields of ports that are asked for. Fewer make an answer much shorter. */
export const STATUS_FIELDS = [
  "id",
  "name",
  "status",
  "device_id",
  "device_owner",
  "binding:vif_type",
  "binding:vif_details",
  "binding:host_id",
  "revision_number",
] as const;

/** Networking API v2.0 of Neutron: one method for each request that the suite makes. Each rejects with `CloudError`. */
export class NeutronClient {
  readonly #rest: RestClient;

  constructor(rest: RestClient) {
    this.#rest = rest;
  }

  /** Makes all ports or none. The results are in the order of the drafts, by their names, which must differ. */
  async createPorts(drafts: readonly PortDraft[], options: AbortOptions): Promise<readonly NeutronPort[]> {
    const request = {
      method: "POST",
      path: "/v2.0/ports",
      body: { ports: drafts },
      timeoutMs: BULK_TIMEOUT_MS,
      action: `create ${drafts.length} ports`,
      operation: "create-ports",
    } as const;
    return read.ports((await this.#rest.send(request, options)).body);
  }

  /** `ifRevision`: the change is refused with `precondition` if the port has another revision by now. */
  async updatePort(
    id: string,
    change: PortChange,
    options: AbortOptions & { readonly ifRevision?: number | undefined },
  ): Promise<NeutronPort> {
    const { ifRevision } = options;
    const request = {
      method: "PUT",
      path: `/v2.0/ports/${encodeURIComponent(id)}`,
      body: { port: change },
      headers: ifRevision === undefined ? {} : { "if-match": `revision_number=${ifRevision}` },
      action: `change port ${id}`,
      operation: "update-port",
    } as const;
    return read.port((await this.#rest.send(request, options)).body);
  }

  async deletePort(id: string, options: AbortOptions): Promise<void> {
    const path = `/v2.0/ports/${encodeURIComponent(id)}`;
    await this.#rest.send({ method: "DELETE", path, action: `delete port ${id}`, operation: "delete-port" }, options);
  }

  /** One page of the ports that match, by their ids; `marker` is the id of the last port of the page before. */
  async listPorts(
    filter: PortFilter,
    options: AbortOptions & {
      readonly fields?: readonly string[] | undefined;
      readonly marker?: string | undefined;
      readonly limit?: number | undefined;
    },
  ): Promise<readonly NeutronPort[]> {
    const { fields = [], marker, limit } = options;
    const page: Query =
      limit === undefined
        ? []
        : [
            ["limit", String(limit)],
            ["sort_key", "id"],
            ["sort_dir", "asc"],
          ];
    const query: Query = [
      ...all("device_id", filter.deviceIds),
      ...all("id", filter.ids),
      ...all("device_owner", filter.deviceOwner === undefined ? [] : [filter.deviceOwner]),
      ...all("name", filter.name === undefined ? [] : [filter.name]),
      ...all("network_id", filter.networkId === undefined ? [] : [filter.networkId]),
      ...all("tags", filter.tag === undefined ? [] : [filter.tag]),
      ...all("fields", fields),
      ...page,
      ...(marker === undefined ? [] : [["marker", marker] as const]),
    ];
    return read.ports(await this.#list("ports", "list-ports", query, { ...options, timeoutMs: BULK_TIMEOUT_MS }));
  }

  /** All ports that match, page after page. */
  async *eachPort(filter: PortFilter, options: AbortOptions): AsyncGenerator<NeutronPort, void, undefined> {
    for (let marker: string | undefined; ; ) {
      const page = await this.listPorts(filter, { ...options, marker, limit: PAGE_SIZE });
      yield* page;
      const last = page.at(-1);
      if (last === undefined || page.length < PAGE_SIZE || last.id === marker) return;
      marker = last.id;
    }
  }

  /** Sets all tags of a port. */
  async setTags(id: string, tags: readonly string[], options: AbortOptions): Promise<void> {
    const request = {
      method: "PUT",
      path: `/v2.0/ports/${encodeURIComponent(id)}/tags`,
      body: { tags },
      action: `tag port ${id}`,
      operation: "tag-port",
    } as const;
    await this.#rest.send(request, options);
  }

  /** Networks with this id or name, three at most of a name; with `isWhole`, all of a project. */
  async listNetworks(
    by: { readonly id?: string; readonly name?: string; readonly projectId?: string | undefined },
    { isWhole = false, ...options }: AbortOptions & { readonly isWhole?: boolean },
  ): Promise<readonly NeutronNetwork[]> {
    const query = namesakes(by).filter(([name]) => !isWhole || name !== "limit");
    return read.networks(await this.#list("networks", "list-networks", query, options));
  }

  /** The subnets of networks, or those with this id or name in them. */
  async listSubnets(
    by: { readonly networkIds: readonly string[]; readonly id?: string; readonly name?: string },
    options: AbortOptions,
  ): Promise<readonly NeutronSubnet[]> {
    const { networkIds, ...one } = by;
    const query = [...all("network_id", networkIds), ...(Object.keys(one).length === 0 ? [] : namesakes(one))];
    return read.subnets(await this.#list("subnets", "list-subnets", query, options));
  }

  /** Security groups with this id or name; three at most of a name. */
  async listSecurityGroups(
    by: { readonly id?: string; readonly name?: string; readonly projectId?: string | undefined },
    options: AbortOptions,
  ): Promise<readonly NeutronSecurityGroup[]> {
    return read.securityGroups(await this.#list("security-groups", "list-security-groups", namesakes(by), options));
  }

  /** The agents of a host; of all hosts without one. */
  async listAgents({
    host,
    ...options
  }: AbortOptions & { readonly host?: string | undefined }): Promise<readonly NeutronAgent[]> {
    const query = host === undefined ? [] : ([["host", host]] as const);
    return read.agents(await this.#list("agents", "list-agents", query, options));
  }

  /** The aliases of the extensions that the server has. */
  async listExtensions(options: AbortOptions): Promise<ReadonlySet<string>> {
    const extensions = read.extensions(await this.#list("extensions", "list-extensions", [], options));
    return new Set(extensions.map(({ alias }) => alias));
  }

  /** The quota of ports of a project, and how many of it are used. The server needs the extension `quota_details`. */
  async portQuota(projectId: string, { signal }: AbortOptions): Promise<NeutronQuota> {
    const request = {
      method: "GET",
      path: `/v2.0/quotas/${encodeURIComponent(projectId)}/details.json`,
      action: `read the quota of project ${projectId}`,
      operation: "read-quota",
    } as const;
    return read.quota((await this.#rest.send(request, { signal })).body).port;
  }

  async #list(
    resource: string,
    operation: string,
    query: Query,
    { signal, timeoutMs }: AbortOptions & Pick<RestRequest, "timeoutMs">,
  ): Promise<unknown> {
    const request = {
      method: "GET",
      path: `/v2.0/${resource}`,
      query,
      timeoutMs,
      action: `list ${resource}`,
      operation,
    } as const;
    return (await this.#rest.send(request, { signal })).body;
  }
}

type Query = readonly (readonly [name: string, value: string])[];

/** A name several times is any of its values. */
function all(name: string, values: readonly string[] = []): Query {
  return values.map((value) => [name, value] as const);
}

function namesakes(by: {
  readonly id?: string;
  readonly name?: string;
  readonly projectId?: string | undefined;
}): Query {
  return [
    ...all("id", by.id === undefined ? [] : [by.id]),
    ...all("name", by.name === undefined ? [] : [by.name]),
    ...all("project_id", by.projectId === undefined ? [] : [by.projectId]),
    ["limit", String(NAMESAKES)],
  ];
}

import type { AbortOptions } from "#base/async";
import { CloudError, type RestClient, type RestRequest } from "#cloud/rest";
import {
  hasNextPage,
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
/** Pages of one list at most: more are of a server whose pages do not end. */
const MAX_PAGES = 10_000;
/** Objects that a look-up by name reads: enough to see that a name is not unique. */
const NAMESAKES = 3;

/** The fields of a new port, with the names of the API. */
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

/** The changed fields of a port, with the names of the API. */
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
  "description",
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

  /** Makes one port by a request for no list, which Neutron does in another way. */
  async createPort(draft: PortDraft, options: AbortOptions): Promise<NeutronPort> {
    const request = {
      method: "POST",
      path: "/v2.0/ports",
      body: { port: draft },
      timeoutMs: BULK_TIMEOUT_MS,
      action: "create 1 port",
      operation: "create-ports",
    } as const;
    return read.port((await this.#rest.send(request, options)).body);
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

  /**
   * The ports that match: all of them, or with a `limit` one page by their ids; `marker` is the id of the last port of the page before. A server may
   * have a limit of its own (`pagination_max_limit`), so all can be several answers.
   */
  async listPorts(
    filter: PortFilter,
    options: AbortOptions & {
      readonly fields?: readonly string[] | undefined;
      readonly marker?: string | undefined;
      readonly limit?: number | undefined;
    },
  ): Promise<readonly NeutronPort[]> {
    const list = portList(filter, options);
    return options.limit === undefined
      ? this.#whole(list, read.ports, options)
      : read.ports(await this.#list(list, options));
  }

  /** All ports that match, page after page. */
  async *eachPort(filter: PortFilter, options: AbortOptions): AsyncGenerator<NeutronPort, void, undefined> {
    for (let marker: string | undefined; ; ) {
      const body = await this.#list(portList(filter, { marker, limit: PAGE_SIZE }), options);
      const page = read.ports(body);
      yield* page;
      const last = page.at(-1);
      // A page that is not full can be one of a server with a lower limit.
      const isEnd = page.length < PAGE_SIZE && !hasNextPage(body);
      if (last === undefined || last.id === marker || isEnd) return;
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
    const list = { resource: "networks", operation: "list-networks", query } as const;
    return isWhole ? this.#whole(list, read.networks, options) : read.networks(await this.#list(list, options));
  }

  /** The subnets of networks, or those with this id or name in them. */
  async listSubnets(
    by: { readonly networkIds: readonly string[]; readonly id?: string; readonly name?: string },
    options: AbortOptions,
  ): Promise<readonly NeutronSubnet[]> {
    const { networkIds, ...one } = by;
    const isWhole = Object.keys(one).length === 0;
    const query = [...all("network_id", networkIds), ...(isWhole ? [] : namesakes(one))];
    const list = { resource: "subnets", operation: "list-subnets", query } as const;
    return isWhole ? this.#whole(list, read.subnets, options) : read.subnets(await this.#list(list, options));
  }

  /** Security groups with this id or name; three at most of a name. */
  async listSecurityGroups(
    by: { readonly id?: string; readonly name?: string; readonly projectId?: string | undefined },
    options: AbortOptions,
  ): Promise<readonly NeutronSecurityGroup[]> {
    const list = { resource: "security-groups", operation: "list-security-groups", query: namesakes(by) } as const;
    return read.securityGroups(await this.#list(list, options));
  }

  /** Resolves with true if a security group of another project may be used by a project: it is shared with it, or with all. */
  async isGroupShared(
    id: string,
    { projectId, ...options }: AbortOptions & { readonly projectId: string },
  ): Promise<boolean> {
    const query: Query = [
      ["object_type", "security_group"],
      ["object_id", id],
      ...all("target_tenant", [projectId, "*"]),
      ["limit", "1"],
    ];
    const list = { resource: "rbac-policies", operation: "list-rbac-policies", query } as const;
    return read.rbacPolicies(await this.#list(list, options)).length > 0;
  }

  /** The agents of a host; of all hosts without one. */
  async listAgents({
    host,
    ...options
  }: AbortOptions & { readonly host?: string | undefined }): Promise<readonly NeutronAgent[]> {
    const query = host === undefined ? [] : ([["host", host]] as const);
    return this.#whole({ resource: "agents", operation: "list-agents", query }, read.agents, options);
  }

  /** The aliases of the extensions that the server has. */
  async listExtensions(options: AbortOptions): Promise<ReadonlySet<string>> {
    const list = { resource: "extensions", operation: "list-extensions", query: [] } as const;
    const extensions = read.extensions(await this.#list(list, options));
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

  /**
   * All objects of a list, page after page for as long as the server tells of a next one. Its link is not followed: it can name another server, as
   * behind a proxy.
   */
  async #whole<Item extends { readonly id: string }>(
    list: ListRequest,
    readPage: (body: unknown) => readonly Item[],
    options: AbortOptions,
  ): Promise<readonly Item[]> {
    const items: Item[] = [];
    let marker: Query = [];
    for (let pages = 0; pages < MAX_PAGES; pages += 1) {
      const body = await this.#list({ ...list, query: [...list.query, ...marker] }, options);
      const page = readPage(body);
      const last = page.at(-1)?.id;
      items.push(...page);
      if (last === undefined || last === marker[0]?.[1] || !hasNextPage(body)) return items;
      marker = [["marker", last]];
    }
    throw new CloudError("bad-response", `the list of ${list.resource} has more than ${MAX_PAGES} pages`);
  }

  async #list({ resource, ...list }: ListRequest, { signal }: AbortOptions): Promise<unknown> {
    const request = { method: "GET", path: `/v2.0/${resource}`, action: `list ${resource}`, ...list } as const;
    return (await this.#rest.send(request, { signal })).body;
  }
}

interface ListRequest extends Pick<RestRequest, "operation" | "timeoutMs"> {
  readonly resource: string;
  readonly query: Query;
}

type Query = readonly (readonly [name: string, value: string])[];

function portList(
  filter: PortFilter,
  {
    fields = [],
    marker,
    limit,
  }: {
    readonly fields?: readonly string[] | undefined;
    readonly marker?: string | undefined;
    readonly limit?: number | undefined;
  },
): ListRequest {
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
  return { resource: "ports", operation: "list-ports", query, timeoutMs: BULK_TIMEOUT_MS };
}

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

import type { AbortOptions } from "#base/async";
import type { NeutronNetwork, NeutronSubnet, PortChange, PortDraft } from "#cloud/neutron";
import type { RestAnswer, RestClient, RestRequest } from "#cloud/rest";
import { type AlcorPort, readPort, readPorts, readSubnets, readVpcs } from "./objects.ts";

/** The fields of a new port: those of Neutron, an id of the caller's choice, and the device that the agent makes. */
export interface AlcorPortDraft extends Omit<PortDraft, "binding:vnic_type"> {
  readonly id: string;
  readonly veth_name: string;
  readonly network_ns: string;
}

/** The API of Alcor's managers for one project (docs/spec/vpc-nics.md#6.6). Each method rejects with `CloudError`. */
export class AlcorClient {
  readonly #rest: RestClient;
  readonly #project: string;

  constructor(rest: RestClient, { projectId }: { readonly projectId: string }) {
    this.#rest = rest;
    this.#project = `/project/${encodeURIComponent(projectId)}`;
  }

  async createPort(port: AlcorPortDraft, options: AbortOptions): Promise<AlcorPort> {
    const request = {
      method: "POST",
      path: "/ports",
      body: { port },
      action: `create port ${port.id}`,
      operation: "create-port",
    } as const;
    return readPort((await this.#send(request, options)).body);
  }

  async updatePort(id: string, port: PortChange, options: AbortOptions): Promise<AlcorPort> {
    const request = {
      method: "PUT",
      path: `/ports/${encodeURIComponent(id)}`,
      body: { port },
      action: `change port ${id}`,
      operation: "update-port",
    } as const;
    return readPort((await this.#send(request, options)).body);
  }

  async deletePort(id: string, options: AbortOptions): Promise<void> {
    await this.#send(
      {
        method: "DELETE",
        path: `/ports/${encodeURIComponent(id)}`,
        action: `delete port ${id}`,
        operation: "delete-port",
      },
      options,
    );
  }

  async getPort(id: string, options: AbortOptions): Promise<AlcorPort> {
    const request = {
      method: "GET",
      path: `/ports/${encodeURIComponent(id)}`,
      action: `get port ${id}`,
      operation: "get-port",
    } as const;
    return readPort((await this.#send(request, options)).body);
  }

  /** The ports whose field has a value. */
  async listPorts(
    field: "device_id" | "device_owner",
    value: string,
    options: AbortOptions,
  ): Promise<readonly AlcorPort[]> {
    const query = [[field, value]] as const;
    return readPorts(
      (
        await this.#send(
          { method: "GET", path: "/ports", query, action: "list ports", operation: "list-ports" },
          options,
        )
      ).body,
    );
  }

  /** All VPCs of the project. */
  async listVpcs(options: AbortOptions): Promise<readonly NeutronNetwork[]> {
    return readVpcs(
      (await this.#send({ method: "GET", path: "/vpcs", action: "list VPCs", operation: "list-vpcs" }, options)).body,
    );
  }

  /** All subnets of the project. */
  async listSubnets(options: AbortOptions): Promise<readonly NeutronSubnet[]> {
    return readSubnets(
      (
        await this.#send(
          { method: "GET", path: "/subnets", action: "list subnets", operation: "list-subnets" },
          options,
        )
      ).body,
    );
  }

  async #send(request: RestRequest, options: AbortOptions): Promise<RestAnswer> {
    return this.#rest.send({ ...request, path: `${this.#project}${request.path}` }, options);
  }
}

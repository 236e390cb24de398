import { NeutronBedError } from "./errors.ts";

/** An object of Neutron's API, as it is in JSON. */
export type NeutronObject = Readonly<Record<string, unknown>>;

/** A network that was made, with its subnets. */
export interface MadeNetwork {
  readonly id: string;
  readonly projectId: string;
  readonly subnets: readonly string[];
}

/** Requests of a cloud's user to a Neutron without authentication: networks, subnets, groups and ports are made by it, not by us. */
export class NeutronApi {
  readonly url: URL;
  readonly #lastWords: (() => string) | undefined;

  /** `lastWords` returns the end of the server's log, which the error of a status of 500 and more has. */
  constructor(url: URL, { lastWords }: { readonly lastWords?: () => string } = {}) {
    this.url = url;
    this.#lastWords = lastWords;
  }

  /** Further headers of each request, such as those by which the user is known. */
  protected async headers(): Promise<Readonly<Record<string, string>>> {
    return {};
  }

  /** One request; its JSON. Rejects with {@link NeutronBedError} `refused` for a status of 400 and more. */
  async request(method: string, path: string, body?: object): Promise<Record<string, Record<string, unknown>>> {
    const headers = { "content-type": "application/json", ...(await this.headers()) };
    const init = body === undefined ? {} : { body: JSON.stringify(body) };
    const answer = await fetch(new URL(`/v2.0/${path}`, this.url), { method, headers, ...init });
    const text = await answer.text();
    if (answer.status >= 400) {
      const words =
        answer.status >= 500 && this.#lastWords !== undefined ? `; its log ends:\n${this.#lastWords()}` : "";
      throw new NeutronBedError("refused", `${method} ${path}: HTTP ${answer.status}: ${text.slice(0, 500)}${words}`);
    }
    return text === "" ? {} : JSON.parse(text);
  }

  /** The objects of a list such as `ports?device_id=x`. */
  async list(path: string): Promise<readonly NeutronObject[]> {
    const answer = (await this.request("GET", path)) as unknown as Record<string, readonly NeutronObject[]>;
    return Object.values(answer)[0] ?? [];
  }

  /** Makes one object of a kind such as `port`, and returns it. */
  async make(kind: string, object: object): Promise<NeutronObject & { readonly id: string }> {
    const answer = await this.request("POST", `${kind}s`.replaceAll("_", "-"), { [kind]: object });
    const made = answer[kind] ?? {};
    return { ...made, id: String(made["id"]) };
  }

  /** Makes a network and its subnets, `subnet-1` and so on. */
  async makeNetwork(network: object, cidrs: readonly string[], subnet: object = {}): Promise<MadeNetwork> {
    const { id, project_id: projectId } = await this.make("network", network);
    const subnets: string[] = [];
    for (const [at, cidr] of cidrs.entries()) {
      const body = {
        ...("project_id" in network ? { project_id: network.project_id } : {}),
        network_id: id,
        cidr,
        ip_version: cidr.includes(":") ? 6 : 4,
        name: `subnet-${at + 1}`,
        ...subnet,
      };
      subnets.push((await this.make("subnet", body)).id);
    }
    return { id, projectId: String(projectId), subnets };
  }
}

/**
 * A real Keystone on loopback from Debian's package `keystone`, with SQLite and Fernet tokens (docs/spec/vpc-nics.md#13, tier C).
 *
 * Owns: the process, its folder, users, roles and projects. Does not know: the services in its catalogue.
 *
 * ```ts
 * await using keystone = await KeystoneServer.start();
 * const project = await keystone.makeProject("shop");
 * await keystone.makeUser({ name: "nics", password: "secret", roles: [["member", project]] });
 * ```
 */
import { cpSync, existsSync, mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { freePort } from "#test/ports";
import { keptTemplate, OpenStackProcess, runPython } from "./openstack-process.ts";

const SERVER = "/usr/bin/keystone-wsgi-public";
/** The administrator of the bed. */
export const KEYSTONE_ADMIN = { username: "admin", password: "secret-of-the-admin" } as const;

/** Runs keystone-manage with each list of words. It is loaded once, and each command is a process that starts from there: a load takes two seconds of a processor. */
const MANAGE = `
import json, os, sys
from keystone.cmd import manage
for words in map(json.loads, sys.argv[1:]):
    child = os.fork()
    if child == 0:
        sys.argv = ["keystone-manage", *words]
        sys.exit(manage.main())
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(f"keystone-manage {words} failed")
`;

export interface KeystoneOptions {
  /** The time for which a token lives, in seconds. Default 3600. */
  readonly tokenSeconds?: number;
}

type Json = Readonly<Record<string, unknown>>;

/** Disposing ends the process and removes its folder. */
export class KeystoneServer implements AsyncDisposable {
  /** The URL of the API, with its version. */
  readonly url: URL;
  readonly #process: OpenStackProcess;
  readonly #tokenSeconds: number;
  #token = "";
  #renewAt = Number.NEGATIVE_INFINITY;

  private constructor(url: URL, folder: string, tokenSeconds: number) {
    this.url = url;
    this.#tokenSeconds = tokenSeconds;
    this.#process = new OpenStackProcess({
      name: "Keystone",
      folder,
      argv: [SERVER, "--host", "127.0.0.1", "--port", url.port],
      url,
      env: { OS_KEYSTONE_CONFIG_FILES: join(folder, "keystone.conf") },
    });
  }

  /** Resolves when it answers, which takes about 3 s, the first time on a machine 15 s. */
  static async start({ tokenSeconds = 3600 }: KeystoneOptions = {}): Promise<KeystoneServer> {
    if (!existsSync(SERVER)) throw new Error(`no ${SERVER}: ./run test neutron installs Debian's package keystone`);
    const folder = mkdtempSync(join(tmpdir(), "isthmus-keystone-"));
    cpSync(await template(), folder, { recursive: true });
    writeFileSync(join(folder, "keystone.conf"), config(folder, tokenSeconds));
    const server = new KeystoneServer(new URL(`http://127.0.0.1:${await freePort()}/v3`), folder, tokenSeconds);
    try {
      await server.#process.start();
      // Who checks tokens looks here for Keystone itself.
      await server.addService("identity", server.url);
      return server;
    } catch (error) {
      await server[Symbol.asyncDispose]();
      throw error;
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#process[Symbol.asyncDispose]();
  }

  /** A token of a user for a project. */
  async tokenOf(username: string, password: string, project: string): Promise<string> {
    const domain = { id: "default" };
    const auth = {
      identity: { methods: ["password"], password: { user: { name: username, password, domain } } },
      scope: { project: { name: project, domain } },
    };
    const answer = await this.#send("POST", "auth/tokens", { auth });
    return answer.headers.get("x-subject-token") ?? "";
  }

  /** A token of the administrator that has at least half of its life, for requests of tests to services. */
  async adminToken(): Promise<string> {
    const now = performance.now();
    if (now < this.#renewAt) return this.#token;
    const { username, password } = KEYSTONE_ADMIN;
    this.#token = await this.tokenOf(username, password, "admin");
    this.#renewAt = now + this.#tokenSeconds * 500;
    return this.#token;
  }

  /** Makes a project; returns its id. */
  async makeProject(name: string): Promise<string> {
    return idOf(await this.#post("projects", { project: { name, domain_id: "default" } }), "project");
  }

  /** Makes a user with roles in projects, by the names of roles and the ids of projects; returns its id. Roles that do not exist are made. */
  async makeUser(init: {
    readonly name: string;
    readonly password: string;
    readonly roles: readonly (readonly [role: string, project: string])[];
  }): Promise<string> {
    const { name, password, roles } = init;
    const user = idOf(await this.#post("users", { user: { name, password, domain_id: "default" } }), "user");
    for (const [role, project] of roles) {
      await this.#send(
        "PUT",
        `projects/${project}/users/${user}/roles/${await this.#role(role)}`,
        undefined,
        await this.adminToken(),
      );
    }
    return user;
  }

  /** An application credential of a user for a project, with all roles that it has there. */
  async makeCredential(
    user: { readonly id: string; readonly name: string; readonly password: string },
    project: string,
  ): Promise<{ readonly id: string; readonly secret: string }> {
    const token = await this.tokenOf(user.name, user.password, project);
    const body = { application_credential: { name: `of-${user.name}` } };
    const answer = await this.#send("POST", `users/${user.id}/application_credentials`, body, token);
    const made = ((await answer.json()) as { readonly application_credential: { id: string; secret: string } })
      .application_credential;
    return { id: made.id, secret: made.secret };
  }

  /** Ends an application credential, and the tokens that were made with it. */
  async deleteCredential(
    user: { readonly id: string; readonly name: string; readonly password: string },
    credential: string,
    project: string,
  ): Promise<void> {
    const token = await this.tokenOf(user.name, user.password, project);
    await this.#send("DELETE", `users/${user.id}/application_credentials/${credential}`, undefined, token);
  }

  /** Adds a service to the catalogue. */
  async addService(type: string, url: URL): Promise<void> {
    const service = idOf(await this.#post("services", { service: { type, name: type } }), "service");
    for (const face of ["public", "internal"]) {
      const endpoint = { service_id: service, interface: face, region_id: "RegionOne", url: url.href };
      await this.#post("endpoints", { endpoint });
    }
  }

  async #role(name: string): Promise<string> {
    const answer = await this.#send("GET", `roles?name=${name}`, undefined, await this.adminToken());
    const [found] = ((await answer.json()) as { readonly roles: readonly { readonly id: string }[] }).roles;
    return found?.id ?? idOf(await this.#post("roles", { role: { name } }), "role");
  }

  async #post(path: string, body: object): Promise<Json> {
    return (await (await this.#send("POST", path, body, await this.adminToken())).json()) as Json;
  }

  async #send(method: string, path: string, body?: object, token = ""): Promise<Response> {
    const answer = await fetch(`${this.url.href}/${path}`, {
      method,
      headers: { ...(token === "" ? {} : { "x-auth-token": token }), "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (answer.status >= 400) {
      const log = answer.status < 500 ? "" : this.#process.log().slice(-1500);
      throw new Error(`${method} ${path}: HTTP ${answer.status}: ${await answer.text()}${log}`);
    }
    return answer;
  }
}

function idOf(answer: Json, kind: string): string {
  return String((answer[kind] as Json | undefined)?.["id"]);
}

/** Database and keys with the administrator. */
function template(): Promise<string> {
  return keptTemplate("keystone-template", async (work) => {
    for (const name of ["keys", "credentials"]) mkdirSync(join(work, name), { recursive: true, mode: 0o700 });
    const file = join(work, "keystone.conf");
    writeFileSync(file, config(work, 3600));
    const owner = ["--keystone-user", "root", "--keystone-group", "root"];
    const commands = [
      ["db_sync"],
      ["fernet_setup", ...owner],
      ["credential_setup", ...owner],
      ["bootstrap", "--bootstrap-password", KEYSTONE_ADMIN.password, "--bootstrap-region-id", "RegionOne"],
    ];
    await runPython("-c", MANAGE, ...commands.map((words) => JSON.stringify(["--config-file", file, ...words])));
    // With the other journal a read that is not at its end holds up every write, and Keystone answers 500.
    const database = new DatabaseSync(join(work, "keystone.sqlite"));
    database.exec("PRAGMA journal_mode = WAL");
    database.close();
  });
}

function config(folder: string, tokenSeconds: number): string {
  return `[DEFAULT]
use_stderr = true
[database]
connection = sqlite:///${folder}/keystone.sqlite?timeout=60
[token]
provider = fernet
expiration = ${tokenSeconds}
[fernet_tokens]
key_repository = ${folder}/keys
[fernet_receipts]
key_repository = ${folder}/keys
[credential]
key_repository = ${folder}/credentials
[cache]
enabled = true
backend = dogpile.cache.memory
[identity]
password_hash_rounds = 4
`;
}

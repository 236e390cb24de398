/**
 * The requests of this suite's programs by their service accounts, each kind once: `ISTHMUS_ACCESS_LOG` names a folder, and every server of a run of tests writes a
 * file there. `tools/check-rights.ts` compares them with the rights of the manifests.
 */
import { appendFileSync, mkdirSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { join } from "node:path";
import type { Authorizer, PolicyRule, RequestAttributes, UserInfo } from "./auth.ts";

const ACCOUNT = "system:serviceaccount:";
/** The end of a program's User-Agent; tests that try what an account may not have another one. */
const PROGRAM = /^([a-z-]+)\/\S+ isthmus$/;

/** The most names of a kind of request in the file of a process; what is asked of more has the name `*`. */
const MAX_NAMES = 8;

/** A line of the file. */
export interface AccessRecord {
  /** The program's name, by its User-Agent. */
  readonly program: string;
  /** Namespace and name of the account, `NAMESPACE:NAME`. */
  readonly account: string;
  readonly verb: string;
  readonly group: string;
  /** With its subresource: `pods/exec`. */
  readonly resource: string;
  /** The object's name; empty for requests without one, `*` for further ones. */
  readonly name: string;
  readonly allowed: boolean;
  /** All rights that the account of a refused request had, to distinguish an account with less than its manifest from a manifest with too little. */
  readonly had?: readonly PolicyRule[];
}

/** Writes a record of each kind of request. */
export class AccessLog {
  readonly #file: string;
  readonly #authorizer: Authorizer;
  /** Kind of request → names that are in the file. Bounded by the kinds, and by {@link MAX_NAMES}. */
  readonly #seen = new Map<string, Set<string>>();

  constructor(folder: string, authorizer: Authorizer) {
    mkdirSync(folder, { recursive: true });
    this.#file = join(folder, `${process.pid}.jsonl`);
    this.#authorizer = authorizer;
  }

  /** Throws if the file cannot be written. */
  add(request: IncomingMessage, user: UserInfo, attributes: RequestAttributes, allowed: boolean): void {
    const { verb, group, resource, subresource, namespace, name: asked } = attributes;
    if (!user.name.startsWith(ACCOUNT) || resource === "") return;
    const program = PROGRAM.exec(request.headers["user-agent"] ?? "")?.[1];
    if (program === undefined) return;
    const account = user.name.slice(ACCOUNT.length);
    const kind = subresource === "" ? resource : `${resource}/${subresource}`;
    const key = JSON.stringify([program, account, verb, group, kind, allowed]);
    const names = this.#seen.get(key) ?? new Set();
    this.#seen.set(key, names);
    const name = names.size < MAX_NAMES || names.has(asked) ? asked : "*";
    if (names.has(name)) return;
    names.add(name);
    const record: AccessRecord = { program, account, verb, group, resource: kind, name, allowed };
    const had = allowed ? {} : { had: this.#authorizer.rulesFor(user, namespace).rules };
    appendFileSync(this.#file, `${JSON.stringify({ ...record, ...had })}\n`);
  }
}

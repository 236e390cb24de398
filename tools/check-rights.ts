/**
 * Compares the rights of the manifests with what programs asked for in the tests: a right that no test has used is one too many, unless {@link KEPT}
 * says why it stays, and a request that was refused to an account with the rights of its manifest is one too few.
 *
 *     ISTHMUS_ACCESS_LOG=FOLDER ./run test; node tools/check-rights.ts FOLDER
 */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";

interface Rule {
  readonly verbs?: readonly string[];
  readonly apiGroups?: readonly string[];
  readonly resources?: readonly string[];
}

/** A document of a manifest, as far as it is about rights. */
export interface RightsObject {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly rules?: readonly Rule[];
  readonly roleRef?: { readonly kind: string; readonly name: string };
  readonly subjects?: readonly { readonly kind: string; readonly name: string }[];
}

/** Programs that people run, also with a program's credentials. */
const OF_PEOPLE = new Set(["audit", "explain", "doctor", "status", "nicctl", "uninstall"]);

/** A line of the embedded API server's access log. */
export interface Access {
  readonly program: string;
  /** `NAMESPACE:NAME`. */
  readonly account: string;
  readonly verb: string;
  readonly group: string;
  readonly resource: string;
  readonly allowed: boolean;
  readonly had?: readonly Rule[];
}

const root = join(import.meta.dirname, "..");
const MANIFESTS = "deploy/**/*.yaml";

/** The right to get what an account lists too. */
function reads(account: string, resources: readonly string[]): Readonly<Record<string, string>> {
  const why = "it gives nothing besides list, and people look with it into what a router sees";
  return Object.fromEntries(resources.map((resource) => [`${account} get ${resource}.coil.cybozu.com`, why]));
}

/** Rights that no test uses for sure, and why they stay, by account and right. */
const KEPT: Readonly<Record<string, string>> = {
  "coil-egress-controller list pods": "it binds routers to a role with this right, and one can grant only what one has",
  "coil-egress-controller watch pods": "the same",
  "coil-egress-controller update egresses/finalizers.coil.cybozu.com":
    "the admission plugin OwnerReferencesPermissionEnforcement asks for it",
  "coil-ipam-controller update addresspools/finalizers.coil.cybozu.com": "the same",
  "coil-egress-controller update services":
    "it replaces a Service whose fields exclude those of its Egress, as it does with Deployments in a test",
  ...reads("coil-egress", ["egresses", "addresspools", "addressblocks"]),
  ...reads("coil-egress-controller", ["egresses"]),
  "coil-egress get namespaces": "it gives nothing besides list, and people look with it into what a router sees",
  "coil-egress-controller get namespaces":
    "it binds routers to a role with this right, and one can grant only what one has",
  ...Object.fromEntries(
    ["get", "list", "watch"].map((verb) => [
      `coil-egress-controller ${verb} addressblocks.coil.cybozu.com`,
      "the same",
    ]),
  ),
  "isthmus-service-proxy patch events.events.k8s.io": "it counts an event that repeats, by the code of coild",
  "nic-agent patch events.events.k8s.io": "the same",
  "coild get blockrequests.coil.cybozu.com": "it reads one again that it has made before, and when a watch has ended",
  "coild get services": "it reads one of which its watch does not know yet",
  "coild get namespaces": "the same, at the ADD of a pod in a namespace that was just made",
  "nic-controller get namespaces": "it reads one of which its watch does not know yet",
};

/** One right as text: `list pods`, `update addressblocks.coil.cybozu.com`. */
function rightOf(verb: string, group: string, resource: string): string {
  return `${verb} ${group === "" ? resource : `${resource}.${group}`}`;
}

/** Without the rights to ask about oneself, which everybody has. */
function expand(rules: readonly Rule[]): Set<string> {
  const rights = new Set<string>();
  for (const { verbs = [], apiGroups = [], resources = [] } of rules)
    for (const verb of verbs)
      for (const group of apiGroups)
        if (group !== "authorization.k8s.io")
          for (const resource of resources) rights.add(rightOf(verb, group, resource));
  return rights;
}

/**
 * Pure: the rights of each account, by its name, in one set of manifests. A binding without subjects, to which a controller adds them, is of the
 * accounts that have its name.
 */
export function rightsOf(objects: readonly RightsObject[]): ReadonlyMap<string, ReadonlySet<string>> {
  const roles = new Map(
    objects.filter(({ rules }) => rules !== undefined).map((one) => [nameOf(one), one.rules ?? []]),
  );
  const rights = new Map<string, Set<string>>();
  for (const { metadata, roleRef, subjects } of objects) {
    if (roleRef === undefined) continue;
    const accounts = (subjects ?? [{ kind: "ServiceAccount", name: metadata.name }]).filter(
      ({ kind }) => kind === "ServiceAccount",
    );
    const rules = roles.get(`${roleRef.kind} ${roleRef.name}`) ?? [];
    for (const { name } of accounts) rights.set(name, new Set([...(rights.get(name) ?? []), ...expand(rules)]));
  }
  return rights;
}

function nameOf({ kind, metadata }: RightsObject): string {
  return `${kind} ${metadata.name}`;
}

/** Pure: what is wrong with the rights of `files`, of each its objects, in words; sorted. */
export function compareRights(
  files: ReadonlyMap<string, readonly RightsObject[]>,
  accesses: readonly Access[],
): string[] {
  const used = new Map<string, Set<string>>();
  const own = accesses.filter(({ program }) => !OF_PEOPLE.has(program));
  for (const { account, verb, group, resource, allowed } of own) {
    const [, name = ""] = account.split(":");
    const rights = used.get(name) ?? new Set();
    if (allowed) rights.add(rightOf(verb, group, resource));
    used.set(name, rights);
  }
  const faults = new Set<string>();
  if (Array.from(files.values()).every((objects) => rightsOf(objects).size === 0))
    faults.add("no manifest gives a right to an account: there is nothing to compare");
  for (const [file, objects] of files) {
    for (const [account, rights] of rightsOf(objects)) {
      for (const right of rights)
        if (used.get(account)?.has(right) !== true && KEPT[`${account} ${right}`] === undefined)
          faults.add(`${file}: ${account} may ${right}, which no test has used`);
      for (const { account: whose, verb, group, resource, allowed, had = [] } of own) {
        if (allowed || whose.split(":")[1] !== account) continue;
        const has = expand(had);
        if (has.size === rights.size && [...rights].every((right) => has.has(right)))
          faults.add(`${file}: ${account} lacks ${rightOf(verb, group, resource)}, which it has asked for`);
      }
    }
  }
  return [...faults].sort();
}

/** What is wrong with the rights of this checkout's manifests, by the access log in `folder`. Throws if the log has nothing. */
export function rightsFaults(folder: string): string[] {
  const lines = globSync("*.jsonl", { cwd: folder }).flatMap((file) =>
    readFileSync(join(folder, file), "utf8").trim().split("\n"),
  );
  if (lines.length === 0) throw new Error(`${folder} has no access log`);
  const files = new Map(
    globSync(MANIFESTS, { cwd: root, exclude: ["deploy/chart/**", "deploy/crds/**", "deploy/lab/**"] }).map((file) => [
      file,
      parseAllDocuments(readFileSync(join(root, file), "utf8")).map((one) => one.toJS() as RightsObject),
    ]),
  );
  const accesses = lines.map((line) => JSON.parse(line) as Access);
  return [...compareRights(files, accesses), ...staleReasons(files, Object.keys(KEPT))];
}

/** Pure: the names of `kept`, as `coild get services`, that no manifest gives any more. */
export function staleReasons(files: ReadonlyMap<string, readonly RightsObject[]>, kept: readonly string[]): string[] {
  const given = new Set(
    Array.from(files.values()).flatMap((objects) =>
      Array.from(rightsOf(objects)).flatMap(([account, rights]) =>
        Array.from(rights, (right) => `${account} ${right}`),
      ),
    ),
  );
  return kept.filter((name) => !given.has(name)).map((name) => `KEPT has "${name}", which no manifest gives`);
}

if (import.meta.main) {
  const [folder] = process.argv.slice(2);
  if (folder === undefined) {
    console.error("usage: node tools/check-rights.ts FOLDER");
    process.exit(2);
  }
  const faults = rightsFaults(folder);
  for (const fault of faults) console.error(fault);
  console.log(`${faults.length} faults`);
  process.exitCode = faults.length === 0 ? 0 : 1;
}

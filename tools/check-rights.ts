/**
 * Compares the rights of the manifests with what programs asked for in the tests: a right that no test has used is one too many, unless {@link KEPT}
 * says why it stays, and a request that was refused to an account with the rights of its manifest is one too few.
 *
 *     ISTHMUS_ACCESS_LOG=FOLDER ./run test; node tools/check-rights.ts FOLDER
 */
import "./require-node.ts";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";

interface Rule {
  readonly verbs?: readonly string[];
  readonly apiGroups?: readonly string[];
  readonly resources?: readonly string[];
  readonly resourceNames?: readonly string[];
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
  /** The object's name; empty without one, `*` for one of many. */
  readonly name?: string;
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
  ...Object.fromEntries(
    ["get", "update"].map((verb) => [
      `coil-egress-controller ${verb} clusterrolebindings.rbac.authorization.k8s.io psp-coil-egress`,
      "the binding of Coil's own manifests where a cluster has PodSecurityPolicies",
    ]),
  ),
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
  "coil-egress-controller patch events.events.k8s.io": "the same",
  "coil-ipam-controller patch events.events.k8s.io": "the same",
  "coild get blockrequests.coil.cybozu.com": "it reads one again that it has made before, and when a watch has ended",
  "coild get services": "it reads one of which its watch does not know yet",
  "coild get namespaces": "the same, at the ADD of a pod in a namespace that was just made",
  "nic-controller get namespaces": "it reads one of which its watch does not know yet",
  ...Object.fromEntries(
    ["coild", "coil-egress-controller", "coil-router", "isthmus-service-proxy", "nic-controller", "nic-agent"].map(
      (account) => [
        `${account} create tokenreviews.authentication.k8s.io`,
        "with --metrics-authorization, by the code of coil-ipam-controller",
      ],
    ),
  ),
};

/** Verbs whose requests name one object. */
const OF_ONE = new Set(["get", "update", "patch", "delete"]);

/**
 * Kinds whose objects are each somebody's own: locks, credentials, settings, rights and admission. Whoever has the verbs of one object on all of
 * them has what others keep there, so each rule says which ones.
 */
const OWNED_BY_NAME = new Set([
  "configmaps",
  "secrets",
  "leases.coordination.k8s.io",
  "customresourcedefinitions.apiextensions.k8s.io",
  ...["clusterrolebindings", "clusterroles", "rolebindings", "roles"].map(
    (kind) => `${kind}.rbac.authorization.k8s.io`,
  ),
  ...["mutating", "validating"].map((kind) => `${kind}webhookconfigurations.admissionregistration.k8s.io`),
]);

/** One right as text: `list pods`, `update addressblocks.coil.cybozu.com`, `update leases.coordination.k8s.io coil-ipam-leader`. */
function rightOf(verb: string, group: string, resource: string, name?: string): string {
  return `${verb} ${kindOf(group, resource)}${name === undefined ? "" : ` ${name}`}`;
}

function kindOf(group: string, resource: string): string {
  return group === "" ? resource : `${resource}.${group}`;
}

/** Without the rights to ask about oneself, which everybody has. */
function expand(rules: readonly Rule[]): Set<string> {
  const rights = new Set<string>();
  for (const { verbs = [], apiGroups = [], resources = [], resourceNames = [] } of rules)
    for (const verb of verbs)
      for (const group of apiGroups)
        if (group !== "authorization.k8s.io")
          for (const resource of resources)
            if (resourceNames.length === 0) rights.add(rightOf(verb, group, resource));
            else for (const name of resourceNames) rights.add(rightOf(verb, group, resource, name));
  return rights;
}

/**
 * Pure: the rules of `objects` that give verbs of one object, or all verbs, on a kind of {@link OWNED_BY_NAME} without its name; in words. A `*` in place
 * of a kind or a group is each of them.
 */
export function unnamedRights(objects: readonly RightsObject[]): string[] {
  return objects.flatMap((object) =>
    (object.rules ?? []).flatMap(({ verbs = [], apiGroups = [], resources = [], resourceNames = [] }) => {
      if (resourceNames.length > 0) return [];
      const wide = verbs.filter((verb) => verb === "*" || OF_ONE.has(verb));
      const kinds = apiGroups.flatMap((group) => resources.map((resource) => kindOf(group, resource)));
      const all = apiGroups.includes("*") || resources.includes("*");
      return kinds
        .filter((kind) => all || OWNED_BY_NAME.has(kind))
        .flatMap((kind) => wide.map((verb) => `${nameOf(object)} may ${verb} ${kind} of every name`));
    }),
  );
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

/** The suite's own objects that a manifest's object is, or gives rights on: `leases coil-ipam-leader`. Groups are left out. */
function namesIn({ kind, metadata, rules = [] }: RightsObject): readonly string[] {
  // Values and settings of programs are no objects.
  const own = metadata === undefined ? [] : [`${kind.toLowerCase()}s ${metadata.name}`];
  return [
    ...own,
    ...rules.flatMap(({ resources = [], resourceNames = [] }) =>
      resources.flatMap((resource) => resourceNames.map((name) => `${resource} ${name}`)),
    ),
  ];
}

/** True for a right on the objects of every name, where each request was for one that the manifests name. */
function onlyKnown(right: string, names: ReadonlySet<string> | undefined, known: ReadonlySet<string>): boolean {
  const [verb = "", kind = "", name] = right.split(" ");
  const resource = kind.split(".")[0];
  return (
    name === undefined &&
    OF_ONE.has(verb) &&
    names !== undefined &&
    [...names].every((one) => known.has(`${resource} ${one}`))
  );
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
  /** Account and right without a name → the names of its requests. */
  const asked = new Map<string, Set<string>>();
  const own = accesses.filter(({ program }) => !OF_PEOPLE.has(program));
  for (const { account, verb, group, resource, name: object = "", allowed } of own) {
    const [, name = ""] = account.split(":");
    const rights = used.get(name) ?? new Set();
    const right = rightOf(verb, group, resource);
    if (allowed) {
      rights.add(right).add(rightOf(verb, group, resource, object));
      asked.set(`${name} ${right}`, (asked.get(`${name} ${right}`) ?? new Set()).add(object));
    }
    used.set(name, rights);
  }
  const known = new Set([...files.values()].flat().flatMap(namesIn));
  const faults = new Set<string>();
  if (Array.from(files.values()).every((objects) => rightsOf(objects).size === 0))
    faults.add("no manifest gives a right to an account: there is nothing to compare");
  for (const [file, objects] of files) {
    for (const [account, rights] of rightsOf(objects)) {
      for (const right of rights)
        if (used.get(account)?.has(right) !== true && KEPT[`${account} ${right}`] === undefined)
          faults.add(`${file}: ${account} may ${right}, which no test has used`);
        else if (onlyKnown(right, asked.get(`${account} ${right}`), known))
          faults.add(
            `${file}: ${account} may ${right} of every name, and asks for ${[...(asked.get(`${account} ${right}`) ?? [])].sort().join(", ")} alone: name it`,
          );
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

/** The objects of this checkout's manifests, by file. Those of a lab are not the suite's accounts, but those of people. */
export function manifestsWithRights(): ReadonlyMap<string, readonly RightsObject[]> {
  const files = globSync(MANIFESTS, { cwd: root, exclude: ["deploy/chart/**", "deploy/crds/**", "deploy/lab/**"] });
  return new Map(
    files.map((file) => [
      file,
      parseAllDocuments(readFileSync(join(root, file), "utf8")).map((one) => one.toJS() as RightsObject),
    ]),
  );
}

/** What is wrong with the rights of this checkout's manifests, by the access log in `folder`. Throws if the log has nothing. */
export function rightsFaults(folder: string): string[] {
  const lines = globSync("*.jsonl", { cwd: folder }).flatMap((file) =>
    readFileSync(join(folder, file), "utf8").trim().split("\n"),
  );
  if (lines.length === 0) throw new Error(`${folder} has no access log`);
  const files = manifestsWithRights();
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

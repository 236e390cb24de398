/**
 * Writes what is made of `deploy/chart`: one YAML file for each variant of `deploy/variants`, the parts that programs outside of pods need, the
 * tunnel's static pods, and the schema of the chart's values.
 *
 *     node tools/gen-manifests.ts           writes what differs
 *     node tools/gen-manifests.ts --check   writes nothing; exit code 1 when something differs
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";
import { generate } from "./generated.ts";
import { joinDocuments, jsonSchema, readChart, readValues, renderChart, type Values } from "./manifests/index.ts";

const ROOT = join(import.meta.dirname, "..");
const DEPLOY = join(ROOT, "deploy");
const VARIANT = ".values.yaml";
/** Lines that hardly any cluster has as they stand. */
const CHANGE =
  /^ +(image: |- --(proxy-server-host|server-count|bind-address|allowed-source)=|- \{ name: KUBERNETES_SERVICE_(HOST|PORT), |(uplinks\.yaml|clouds\.yaml|config\.conf): \|)/;
/** Lines of a network configuration that names a plugin of others. */
const CHANGE_NETWORK = /^ +cni_netconf: \|(?=\n( {4}.*\n)*? {4}.*"(ptp|vpc-\w+)")/gm;

const PODS = { pods: { enabled: true } };
const EGRESS = { ...PODS, egress: { enabled: true } };
const NICS = { nics: { enabled: true, credentialsSecret: "nic-controller-credentials" } };
const TUNNEL = { enabled: true, kind: "StaticPod" };
/** The values and the templates of each file. */
const PARTS: Readonly<Record<string, readonly [Values, ...string[]]>> = {
  "pods/rbac.yaml": [{ ...EGRESS, router: { enabled: true } }, "pods-rbac", "router-rbac"],
  "pods/coild-policy.yaml": [PODS, "pods-policy"],
  "pods/rbac-chained.yaml": [{ ...EGRESS, pods: { enabled: true, addresses: false } }, "pods-rbac"],
  "pods/webhooks.yaml": [PODS, "pods-webhooks"],
  "pods/egress.yaml": [EGRESS, "egress-rbac"],
  "pods/egress-webhooks.yaml": [EGRESS, "egress-webhooks"],
  "pods/egress-policy.yaml": [{ ...PODS, egress: { enabled: true, restrictTemplates: true } }, "egress-policy"],
  "service-proxy/rbac.yaml": [
    { apiServer: { host: "control-plane.example" }, serviceProxy: { enabled: true } },
    "service-proxy-rbac",
  ],
  "service-proxy/policy.yaml": [
    { apiServer: { host: "control-plane.example" }, serviceProxy: { enabled: true } },
    "service-proxy-policy",
  ],
  "nics/rbac.yaml": [NICS, "nics-rbac"],
  "nics/policy.yaml": [NICS, "nics-policy"],
  "nics/agent.yaml": [NICS, "nics-agent-rbac"],
  "nics/agent-policy.yaml": [NICS, "nics-agent-policy"],
  "nics/webhooks.yaml": [NICS, "nics-webhooks"],
  "metrics/rbac.yaml": [
    {
      ...EGRESS,
      ...NICS,
      router: { enabled: true },
      apiServer: { host: "control-plane.example" },
      serviceProxy: { enabled: true },
      metrics: { authorization: true },
    },
    "metrics-rbac",
  ],
  "tunnel/proxy-agent.static-pod.yaml": [
    { tunnel: { agent: { ...TUNNEL, serverHost: "control-plane.example" } } },
    "tunnel-agent",
  ],
  "tunnel/proxy-server.static-pod.yaml": [{ tunnel: { server: TUNNEL } }, "tunnel-server"],
};

const chart = readChart(join(DEPLOY, "chart"));
const { version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as { readonly version: string };

function crdsOf(...groups: readonly string[]): string[] {
  const files = readdirSync(join(DEPLOY, "crds")).filter((file) =>
    groups.some((group) => file.startsWith(`${group}_`)),
  );
  return files.sort().map((file) => readFileSync(join(DEPLOY, "crds", file), "utf8").replace(/^#.*\n---\n/, ""));
}

/** Workloads come last: what they need is there when they start. Helm has an order of its own for the same reason. */
const ORDER = [
  ..."ServiceAccount ClusterRole ClusterRoleBinding Role RoleBinding ConfigMap Secret Service".split(" "),
  ..."ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding".split(" "),
  ..."MutatingWebhookConfiguration ValidatingWebhookConfiguration DaemonSet Deployment".split(" "),
];

function ordered(text: string): string {
  const placeOf = (document: string): number => {
    const kind = /^kind: (\w+)$/m.exec(document)?.[1] ?? "";
    if (!ORDER.includes(kind)) throw new Error(`the order of ${kind} is not known; add it to ORDER`);
    return ORDER.indexOf(kind);
  };
  const documents = text.split("---\n").filter((one) => one.trim() !== "");
  return documents.toSorted((one, other) => placeOf(one) - placeOf(other)).join("---\n");
}

/** Marks the lines that an operator changes. */
function marked(text: string): string {
  const lines = text.split("\n").map((line) => (CHANGE.test(line) ? `${line} # CHANGE` : line));
  return lines.join("\n").replaceAll(CHANGE_NETWORK, "$& # CHANGE");
}

function variant(name: string): string {
  const file = `${name}${VARIANT}`;
  const source = readFileSync(join(DEPLOY, "variants", file), "utf8");
  const head = /^(?:#.*\n)+/.exec(source)?.[0] ?? "";
  const values = readValues(source, file);
  const rendered = joinDocuments(renderChart(chart, values).values());
  const groups = [...("pods" in values ? ["coil.cybozu.com"] : []), ...("nics" in values ? ["isthmus.dev"] : [])];
  const command = `#\n#     kubectl apply -f deploy/${name}.yaml\n#\n`;
  const origin = `# Generated by tools/gen-manifests.ts from deploy/chart and deploy/variants/${file}. Lines to change have CHANGE at their end.\n`;
  return `${head}${command}${origin}${joinDocuments([...crdsOf(...groups).flatMap((crd) => [crd, "---"]), marked(ordered(rendered))])}`;
}

function part(file: string): string {
  const [values, ...templates] = PARTS[file] ?? [{}];
  const rendered = renderChart(chart, values);
  const texts = templates.flatMap((name) => [rendered.get(`${name}.yaml`) ?? "", "---"]);
  return `# Generated by tools/gen-manifests.ts from deploy/chart. Do not edit.\n${marked(joinDocuments(texts))}`;
}

/** The rights of the programs that a lab runs, and what limits them to their nodes. Routers have theirs of the lab's own objects. */
const LAB_RIGHTS = [
  "pods/rbac.yaml",
  "pods/coild-policy.yaml",
  "pods/egress.yaml",
  "service-proxy/rbac.yaml",
  "nics/rbac.yaml",
  "nics/agent.yaml",
];
const OF_ROUTERS = "coil-egress";
/** The names of roles for people, whose users are not the lab's, end like this. */
const OF_PEOPLE = "-viewer-role";

function labRights(): string {
  const objects = LAB_RIGHTS.flatMap((file) => parseAllDocuments(part(file)).map((one) => one.toJS()));
  const own = objects.filter(({ metadata: { name } }) => name !== OF_ROUTERS && !name.endsWith(OF_PEOPLE));
  return `// Generated by tools/gen-manifests.ts from deploy/chart. Do not edit.
import type { SeedObject } from "#lab/api-server";

/** Accounts, roles, bindings and policies of the programs that a lab runs, as the manifests have them. */
export const LAB_RIGHTS: readonly SeedObject[] = [
${own.map((one) => `  ${JSON.stringify(one)},\n`).join("")}];
`;
}

const variants = readdirSync(join(DEPLOY, "variants")).map((file) => file.slice(0, -VARIANT.length));
const files = new Map([
  ...variants.map((name) => [`${name}.yaml`, variant(name)] as const),
  ...Object.keys(PARTS).map((file) => [file, part(file)] as const),
  ["chart/values.schema.json", `${JSON.stringify(jsonSchema(), undefined, 2)}\n`] as const,
]);
const also = async (): Promise<readonly string[]> =>
  [chart.version, chart.appVersion].every((one) => one === version)
    ? []
    : [`deploy/chart/Chart.yaml has version ${chart.version} of ${chart.appVersion}, and package.json ${version}`];
const script = "tools/gen-manifests.ts";
const rights = { script, folder: join(ROOT, "src/lab/host"), files: new Map([["rights.gen.ts", labRights()]]) };
const args = process.argv.slice(2);
process.exitCode = Math.max(
  await generate({ script, folder: DEPLOY, files, also }, args),
  await generate(rights, args),
);

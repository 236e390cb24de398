import type { EndpointSlice } from "#kube/client";
import { type BlockRequest, NODE_LABEL, POOL_LABEL } from "#kube/coil";
import type { CrdManifest, SchemaNode } from "#kube/crd";
import { maxBlocksOf } from "../status/cluster-rows.ts";
import { parseCertificate, validityFault } from "./certificate.ts";
import type { ClusterFacts } from "./cluster-facts.ts";
import { type FaultCheck, judged } from "./faults.ts";

/** The names in one text, and the number of those that are not shown. */
const MAX_NAMES = 5;

/** The time after which a request for a block should be answered, in milliseconds. */
const LATE_MS = 30_000;

/** The first names, and the number of the others. */
export function namesText(names: readonly string[]): string {
  const more = names.length - MAX_NAMES;
  return `${names.slice(0, MAX_NAMES).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

/** Each CRD is there, serves its versions, and has the fields of this release. */
export function crdChecks({ crds: found }: ClusterFacts, wanted: readonly CrdManifest[]): readonly FaultCheck[] {
  if ("fault" in found) return [judged("crd", "CRDs").unknown(`cannot be read: ${found.fault}`)];
  const there = new Map(found.value.map((one) => [one.metadata.name, one]));
  const groups = new Set(found.value.map(({ spec }) => spec.group));
  return wanted.flatMap((manifest): readonly FaultCheck[] => {
    // A cluster without any type of the group does not have this part of the suite.
    if (!groups.has(manifest.spec.group)) return [];
    const { name } = manifest.metadata;
    const { ok, wrong } = judged("crd", name);
    const remedy = `kubectl apply -f deploy/crds/${manifest.spec.group}_${manifest.spec.names.plural}.yaml`;
    const own = there.get(name);
    if (own === undefined) return [wrong("is missing", remedy)];
    const established = own.status?.conditions?.find(({ type }) => type === "Established");
    if (established !== undefined && established.status !== "True")
      return [wrong(`is not served: ${established.message ?? "it is not established"}`, remedy)];
    if (own.metadata.deletionTimestamp !== undefined || own.status?.conditions?.some(isTerminating) === true)
      return [
        wrong(
          "is being deleted (Terminating): its objects go, and no new ones can be made",
          `kubectl get ${name} -A: the finalizers of these objects hold it; when it is gone: ${remedy}`,
        ),
      ];
    const [version] = manifest.spec.versions;
    const stored = own.spec.versions.find((one) => one.name === version?.name);
    if (stored === undefined || version === undefined) return [wrong(`lacks the version ${version?.name}`, remedy)];
    const lacking = lackingFields(
      version.schema.openAPIV3Schema,
      stored.schema?.openAPIV3Schema as SchemaNode | undefined,
    );
    if (lacking.length > 0) return [wrong(`is older than this program: it lacks ${namesText(lacking)}`, remedy)];
    return [ok("has all fields")];
  });
}

const isTerminating = ({ type, status }: { readonly type: string; readonly status: string }): boolean =>
  type === "Terminating" && status === "True";

/** The fields that a schema has and another one has not, with their paths. Pure. */
export function lackingFields(wanted: SchemaNode, found: SchemaNode | undefined, path = ""): readonly string[] {
  // A schema without fields that keeps all of them lacks none.
  if (found?.["x-kubernetes-preserve-unknown-fields"] === true) return [];
  const items = wanted.items === undefined ? [] : lackingFields(wanted.items, found?.items, `${path}[]`);
  const fields = Object.entries(wanted.properties ?? {}).flatMap(([name, schema]) => {
    const own = path === "" ? name : `${path}.${name}`;
    const there = found?.properties?.[name];
    // The server has a schema of its own for metadata.
    if (own === "metadata" || own === "apiVersion" || own === "kind") return [];
    return there === undefined ? [own] : lackingFields(schema, there, own);
  });
  return [...items, ...fields];
}

/** Webhooks have endpoints, and a certificate that is valid now. */
export function webhookChecks({ webhooks, now }: ClusterFacts): readonly FaultCheck[] {
  if ("fault" in webhooks) return [judged("webhook", "webhooks").unknown(`cannot be read: ${webhooks.fault}`)];
  return webhooks.value.map((one) => {
    const { ok, warning, wrong, unknown } = judged("webhook", `${one.webhook} of ${one.configuration}`);
    const rotate = "run its controller with --enable-cert-rotation=true, or set caBundle of the configuration";
    if (one.caBundle === "") return wrong("has no caBundle, so the API server trusts nobody", rotate);
    const authority = parseCertificate(Buffer.from(one.caBundle, "base64"));
    if (authority === undefined) return wrong("has a caBundle that is not a certificate in PEM", rotate);
    const old = validityFault(authority, now);
    if (old !== undefined) return (old.isExpired ? wrong : warning)(`the authority of caBundle ${old.text}`, rotate);
    if ("fault" in one.endpoints)
      return unknown(`the endpoints of ${one.service} cannot be read: ${one.endpoints.fault}`);
    if (one.endpoints.value === 0)
      return wrong(
        `Service ${one.service} has no ready endpoint`,
        `kubectl describe service -n ${one.service.replace("/", " ")}, and look at the pods of its selector and their logs`,
      );
    if ("fault" in one.secret) return unknown(`the certificate cannot be read: ${one.secret.fault}`);
    const text = one.secret.value?.data?.["tls.crt"];
    if (text === undefined || text === "") return ok(`${one.endpoints.value} ready endpoints`);
    const certificate = parseCertificate(Buffer.from(text, "base64"));
    const secret = `Secret ${one.secret.value?.metadata.namespace}/${one.secret.value?.metadata.name}`;
    if (certificate === undefined) return wrong(`tls.crt of ${secret} is not a certificate`, rotate);
    if (!certificate.verify(authority.publicKey))
      return wrong(`the caBundle has not signed the certificate of ${secret}`, rotate);
    const fault = validityFault(certificate, now);
    if (fault === undefined) return ok(`${one.endpoints.value} ready endpoints, and the caBundle fits`);
    return (fault.isExpired ? wrong : warning)(`the certificate of ${secret} ${fault.text}`, rotate);
  });
}

/** Pools have free blocks, and no request for one waits for long. */
export function poolChecks({ pools, blocks, requests, now }: ClusterFacts): readonly FaultCheck[] {
  if ("fault" in pools) return [judged("pool", "pools").unknown(`cannot be read: ${pools.fault}`)];
  if ("fault" in blocks || "fault" in requests)
    return [judged("pool", "pools").unknown("blocks or requests cannot be read")];
  const taken = Map.groupBy(blocks.value ?? [], ({ metadata }) => metadata.labels?.[POOL_LABEL] ?? "");
  return (pools.value ?? []).map(({ metadata: { name, deletionTimestamp }, spec }) => {
    const { ok, warning, wrong } = judged("pool", `pool ${name}`);
    if (deletionTimestamp !== undefined)
      return wrong(
        `is being deleted: it gives no more blocks, and goes with the last of ${taken.get(name)?.length ?? 0}`,
        "set another pool in the annotation coil.cybozu.com/pool of its namespaces, and make their pods again",
      );
    const max = spec === undefined ? undefined : maxBlocksOf(spec);
    if (max === undefined)
      return wrong("its spec cannot be read", `kubectl edit addresspool ${name}: correct spec.subnets`);
    const count = taken.get(name)?.length ?? 0;
    const text = `${count} of ${max} blocks are taken`;
    const waiting = (requests.value ?? []).filter((one) => one.spec?.poolName === name && isLate(one, now));
    const remedy = `kubectl edit addresspool ${name}: append to spec.subnets`;
    if (count < max) return ok(text);
    if (waiting.length === 0) return warning(`${text}: nodes can still use the free addresses of their blocks`, remedy);
    return wrong(
      `${text}, and these nodes wait for one: ${namesText(waiting.map((one) => one.spec?.nodeName ?? "?"))}`,
      remedy,
    );
  });
}

function isLate({ status, metadata }: BlockRequest, now: number): boolean {
  if (status?.conditions?.some(({ type, status: is }) => type === "Failed" && is === "True")) return true;
  const isAnswered = (status?.conditions ?? []).length > 0;
  return !isAnswered && now - Date.parse(String(metadata.creationTimestamp)) > LATE_MS;
}

/** Each block belongs to a Node that exists. */
export function strayBlocks({ blocks, nodes }: ClusterFacts): readonly FaultCheck[] {
  const { ok, wrong, unknown } = judged("stray-block", "AddressBlocks");
  if ("fault" in blocks) return [unknown(`cannot be read: ${blocks.fault}`)];
  if ("fault" in nodes) return [unknown(`the Nodes cannot be read: ${nodes.fault}`)];
  if (blocks.value === undefined) return [];
  const names = new Set(nodes.value.map(({ name }) => name));
  const stray = blocks.value.filter(({ metadata }) => !names.has(metadata.labels?.[NODE_LABEL] ?? ""));
  if (stray.length === 0) return [ok(`each of ${blocks.value.length} belongs to a Node`)];
  const texts = stray.map(({ metadata }) => `${metadata.name} of ${metadata.labels?.[NODE_LABEL] ?? "no node"}`);
  return [
    wrong(
      `${stray.length} belong to Nodes that are gone: ${namesText(texts)}`,
      "look whether coil-ipam-controller runs and leads, which deletes them within minutes; without it: kubectl delete addressblock NAME, after its node is off",
    ),
  ];
}

/** Each Node has an InternalIP, and no two have the same one. */
export function addressChecks({ nodes }: ClusterFacts): readonly FaultCheck[] {
  if ("fault" in nodes) return [judged("node-address", "Nodes").unknown(`cannot be read: ${nodes.fault}`)];
  const without = nodes.value.filter(({ addresses }) => addresses.length === 0);
  const owners = Map.groupBy(
    nodes.value.flatMap(({ name, addresses }) => addresses.map((address) => ({ name, address }))),
    ({ address }) => address,
  );
  const shared = Array.from(owners, ([address, own]) => ({
    address,
    names: [...new Set(own.map(({ name }) => name))],
  }));
  const remedy = "start their kubelets with --node-ip=ADDRESS, each with its own";
  return [
    ...(without.length === 0
      ? []
      : [
          judged("node-address", "Nodes").wrong(
            `without an InternalIP: ${namesText(without.map(({ name }) => name))}`,
            remedy,
          ),
        ]),
    ...shared
      .filter(({ names }) => names.length > 1)
      .map(({ address, names }) =>
        judged("node-address", `address ${address}`).wrong(`is the InternalIP of ${namesText(names)}`, remedy),
      ),
  ];
}

/** All instances of a program have one version. */
export function versionChecks({ instances }: ClusterFacts): readonly FaultCheck[] {
  if ("fault" in instances) return [judged("versions", "programs").unknown(`cannot be read: ${instances.fault}`)];
  const byProgram = Map.groupBy(instances.value, ({ program }) => program);
  return Array.from(byProgram).flatMap(([program, group]): readonly FaultCheck[] => {
    const { ok, warning } = judged("versions", program);
    const versions = Map.groupBy(group, ({ tag }) => tag ?? "an image without a tag");
    if (versions.size < 2) return [ok(`${group.length} of version ${[...versions.keys()][0]}`)];
    const text = Array.from(versions, ([tag, of]) => `${of.length} of ${tag}`)
      .sort()
      .join(", ");
    const [, minority = []] = [...versions.values()].sort((a, b) => b.length - a.length);
    const [pod] = minority;
    return [
      warning(
        `runs in several versions: ${text}; ${namesText(minority.map(({ name }) => name))}`,
        `kubectl rollout status -n ${pod?.pod?.namespace} for its DaemonSet or Deployment, and look at pods that do not become ready`,
      ),
    ];
  });
}

/** Instances of programs are ready. */
export function notReady({ instances }: ClusterFacts): readonly FaultCheck[] {
  if ("fault" in instances) return [];
  const byProgram = Map.groupBy(instances.value, ({ program }) => program);
  return Array.from(byProgram).flatMap(([program, group]): readonly FaultCheck[] => {
    const { ok, wrong } = judged("not-ready", program);
    const bad = group.filter(({ isReady }) => !isReady);
    const [first] = bad;
    if (first === undefined) return [ok(`${group.length} of ${group.length} are ready`)];
    const text = `${bad.length} of ${group.length} are not ready: ${namesText(bad.map(({ name, reason }) => `${name} (${reason})`))}`;
    return [wrong(text, `kubectl logs -n ${first.pod?.namespace} ${first.pod?.name} -c ${program}`)];
  });
}

/** The number of ready endpoints of slices. Pure. */
export function readyEndpoints(slices: readonly EndpointSlice[]): number {
  const all = slices.flatMap(({ endpoints }) => endpoints ?? []);
  return all.filter(({ conditions }) => conditions?.ready !== false).length;
}

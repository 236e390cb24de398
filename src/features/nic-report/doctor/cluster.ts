import { X509Certificate } from "node:crypto";
import { checksOf, type DoctorCheck, type Fact } from "#base/diagnosis";
import type { EndpointSlice, Lease, Pod, Secret } from "#kube/client";
import { CLAIM_CLUSTER_LABEL, type NicClaim, type NicPolicySpec } from "#kube/nic";

/** The time before its end in which a certificate is told, in milliseconds: it is renewed long before. */
const SOON_MS = 7 * 24 * 3_600_000;
/** The time in which a claim is plugged or active, in milliseconds; then something is wrong. */
const LATE_MS = 120_000;

const OPEN_REMEDY =
  "bind VPCs to namespaces in vpcBindings of NicPolicy default; allowUnboundVPCs: true opens every network of the cloud to every namespace";

/** A configuration of webhooks, as far as it is judged. */
export interface WebhookConfiguration {
  readonly metadata: { readonly name: string };
  readonly webhooks?:
    | readonly { readonly name: string; readonly clientConfig: { readonly caBundle?: string | undefined } }[]
    | undefined;
}

/** The facts of the webhooks for a diagnosis. */
export interface WebhookReport {
  /** The configurations by name; `undefined` for one that is missing. */
  readonly configurations: ReadonlyMap<string, Fact<WebhookConfiguration | undefined>>;
  readonly endpoints: Fact<readonly EndpointSlice[]>;
  readonly secret: Fact<Secret | undefined>;
  readonly now: number;
}

/** Judges the policy; `isOfAnyProject` are the bindings by name without a project, which bind nothing. Pure. */
export function judgePolicy(
  policy: Fact<NicPolicySpec | undefined>,
  isOfAnyProject: (policy: NicPolicySpec, binding: NonNullable<NicPolicySpec["vpcBindings"]>[number]) => boolean,
): DoctorCheck {
  const { ok, warning, wrong } = checksOf("NicPolicy");
  if ("fault" in policy) return wrong(`cannot be read: ${policy.fault}`, "kubectl apply -f deploy/crds");
  if (policy.value === undefined)
    return wrong("there is no NicPolicy default: no namespace may use any VPC", OPEN_REMEDY);
  const { providers = [], vpcBindings = [], tenants = [], allowUnboundVPCs = false } = policy.value;
  const names = providers.map(({ name }) => name).join(", ");
  const defaults = providers.filter((one) => one.default === true).length;
  if (providers.length > 1 && defaults !== 1)
    return wrong(
      `of the providers ${names} ${defaults === 0 ? "none" : "several"} is the default one`,
      "set default of one",
    );
  const missing = vpcBindings.filter(
    ({ provider }) => provider !== undefined && !providers.some(({ name }) => name === provider),
  );
  if (missing.length > 0)
    return wrong(
      `bindings name providers that it does not have: ${missing.map(({ vpc, provider }) => `${vpc} of ${provider}`).join(", ")}`,
      "add the providers, or correct vpcBindings",
    );
  if (vpcBindings.length === 0 && !allowUnboundVPCs)
    return wrong("it has no vpcBindings: no namespace may use any VPC", OPEN_REMEDY);
  const isRestricted = vpcBindings.some(({ namespaces = [] }) => namespaces.length > 0);
  if (allowUnboundVPCs && isRestricted)
    return warning("allowUnboundVPCs has no effect, since a binding names namespaces", "remove it");
  if (allowUnboundVPCs)
    return warning(
      "allowUnboundVPCs is true: whoever may make pods gets ports in any network of the cloud",
      "bind each VPC to its namespaces in vpcBindings, and remove allowUnboundVPCs",
    );
  const spec = policy.value;
  const anywhere = vpcBindings.filter((binding) => isOfAnyProject(spec, binding));
  if (anywhere.length > 0)
    return wrong(
      `bindings name VPCs without their project: ${anywhere.map(({ vpc }) => vpc).join(", ")}; no new pod gets them, since any project could have a network of that name`,
      "set projectID of the binding, in which the name is looked up, or write the VPC's id",
    );
  return ok(
    `providers ${names === "" ? "neutron (default)" : names}; ${vpcBindings.length} bindings, ${tenants.length} tenants`,
  );
}

/** Judges the id of the cluster in its ports; `uid` is that of the namespace kube-system. Pure. */
export function judgeClusterId(claims: Fact<readonly NicClaim[]>, uid: Fact<string | undefined>): DoctorCheck {
  const { ok, warning, unknown } = checksOf("cluster id");
  if ("fault" in claims) return unknown(`the NicClaims cannot be read: ${claims.fault}`);
  if ("fault" in uid || uid.value === undefined)
    return unknown(`the namespace kube-system cannot be read: ${"fault" in uid ? uid.fault : "there is none"}`);
  const ids = claims.value.flatMap(({ metadata }) => metadata.labels?.[CLAIM_CLUSTER_LABEL] ?? []);
  const others = ids.filter((id) => id !== uid.value);
  if (others.length === 0) return ok(`${uid.value}, the uid of the namespace kube-system`);
  const [first = ""] = others;
  return warning(
    `${others.length} of ${claims.value.length} NicClaims have ${[...new Set(others)].join(", ")}, which another cluster can have too: each would take the other's ports that are not in use for its own`,
    `run nic-controller with --cluster-id=${uid.value} until no NicClaim has another id (pods that are replaced get it), then without; nicctl gc --cluster-id=${first} lists what was left`,
  );
}

/** Judges the Lease of the controller. Pure. */
export function judgeLease(lease: Fact<Lease | undefined>, now: number): DoctorCheck {
  const { ok, wrong, unknown } = checksOf("nic-controller");
  if ("fault" in lease) return unknown(`its Lease cannot be read: ${lease.fault}`);
  const { holderIdentity = "", leaseDurationSeconds = 15, renewTime } = lease.value?.spec ?? {};
  const remedy = "kubectl -n kube-system get pods -l app.kubernetes.io/name=nic-controller, and look at their logs";
  if (lease.value === undefined || holderIdentity === "") return wrong("no replica leads: it has no Lease", remedy);
  const ageMs = now - Date.parse(String(renewTime));
  if (!(ageMs <= leaseDurationSeconds * 1000))
    return wrong(
      `no replica leads: ${holderIdentity} has renewed its Lease ${Number.isNaN(ageMs) ? "never" : `${Math.round(ageMs / 1000)} s ago`}, and it lasts ${leaseDurationSeconds} s`,
      remedy,
    );
  return ok(`${holderIdentity} leads`);
}

/** Judges the webhooks: configurations, authority, certificate and endpoints. Pure. */
export function judgeWebhooks({ configurations, endpoints, secret, now }: WebhookReport): DoctorCheck[] {
  const { ok, warning, wrong, unknown } = checksOf("webhooks");
  const found: DoctorCheck[] = [];
  const authorities = new Set<string>();
  let isComplete = true;
  for (const [name, fact] of configurations) {
    if ("fault" in fact) found.push(unknown(`${name} cannot be read: ${fact.fault}`));
    else if (fact.value === undefined) {
      isComplete = false;
      found.push(
        warning(
          `there is no ${name}: pods with faulty NICs are stored, and get no network`,
          "kubectl apply -f deploy/nics/webhooks.yaml",
        ),
      );
    } else
      for (const { name: webhook, clientConfig } of fact.value.webhooks ?? []) {
        if ((clientConfig.caBundle ?? "") === "")
          found.push(
            wrong(
              `${webhook} of ${name} has no caBundle, so the API server cannot call it`,
              "run nic-controller with --enable-cert-rotation, or set caBundle",
            ),
          );
        else authorities.add(clientConfig.caBundle ?? "");
      }
  }
  if (!isComplete) return found;
  found.push(...endpointChecks(endpoints));
  if ("fault" in secret) found.push(unknown(`their certificate cannot be read: ${secret.fault}`));
  else found.push(certificateCheck(secret.value, authorities, now));
  if (found.every(({ state }) => state === "ok")) found.unshift(ok(`${configurations.size} configurations are there`));
  return found;
}

function endpointChecks(endpoints: Fact<readonly EndpointSlice[]>): DoctorCheck[] {
  const { ok, wrong, unknown } = checksOf("webhooks");
  if ("fault" in endpoints) return [unknown(`their endpoints cannot be read: ${endpoints.fault}`)];
  const ready = endpoints.value.flatMap(({ endpoints: list }) =>
    (list ?? []).filter(({ conditions }) => conditions?.ready !== false).flatMap(({ addresses }) => addresses),
  );
  if (ready.length > 0) return [ok(`nic-webhook-service has ${ready.length} ready endpoints`)];
  return [
    wrong(
      "nic-webhook-service has no ready endpoint: pods of namespaces with the label isthmus.dev/enabled are refused",
      "look at the pods of nic-controller",
    ),
  ];
}

/** The certificate of the servers, and whether the authority of the configurations has signed it. */
function certificateCheck(secret: Secret | undefined, authorities: ReadonlySet<string>, now: number): DoctorCheck {
  const { ok, warning, wrong } = checksOf("webhooks");
  const remedy = "run nic-controller with --enable-cert-rotation, or renew Secret kube-system/nic-webhook-server-cert";
  const text = secret?.data?.["tls.crt"];
  if (text === undefined || text === "") return warning("their Secret has no certificate", remedy);
  const certificate = parse(text);
  if (certificate === undefined) return wrong("tls.crt of their Secret is not a certificate", remedy);
  const end = Date.parse(certificate.validTo);
  if (now >= end || now < Date.parse(certificate.validFrom))
    return wrong(`their certificate is valid from ${certificate.validFrom} to ${certificate.validTo}`, remedy);
  const strange = [...authorities].filter((bundle) => {
    const authority = parse(bundle);
    return authority === undefined || !certificate.verify(authority.publicKey);
  });
  if (strange.length > 0) return wrong("the caBundle of a configuration has not signed their certificate", remedy);
  const days = Math.floor((end - now) / 86_400_000);
  return end - now < SOON_MS
    ? warning(`their certificate ends in ${days} days`, remedy)
    : ok(`their certificate ends in ${days} days, and the caBundles have signed it`);
}

/** The first certificate of base64 of PEM; `undefined` if it is none. */
function parse(base64: string): X509Certificate | undefined {
  try {
    return new X509Certificate(Buffer.from(base64, "base64"));
  } catch (error) {
    // OpenSSL's errors have a code.
    if (!(error instanceof Error && "code" in error)) throw error;
    return undefined;
  }
}

/** A node for {@link judgeAgents}. */
export interface AgentNode {
  readonly name: string;
  /** True if claims name it. */
  readonly isUsed: boolean;
}

/** Returns true if a pod runs `nic-agent`, by the words of its containers. Pure. */
export function runsNicAgent({ spec }: Pod): boolean {
  return (spec?.containers ?? []).some(({ name, command = [], args = [] }) =>
    [name, ...command, ...args].some((word) => word === "nic-agent" || word.endsWith("/nic-agent")),
  );
}

/** Judges whether nodes with NICs have a nic-agent that is ready. `pods` are those of its namespace. Pure. */
export function judgeAgents(pods: Fact<readonly Pod[]>, nodes: readonly AgentNode[]): DoctorCheck[] {
  const { unknown, warning } = checksOf("nic-agent");
  if ("fault" in pods) return [unknown(`its pods cannot be read: ${pods.fault}`)];
  const agents = pods.value.filter(runsNicAgent);
  if (agents.length === 0)
    return [
      warning(
        "no pod of kube-system runs it: pods on nodes without it get no NICs; if nodes run it otherwise, run isthmus doctor on them",
      ),
    ];
  return nodes.flatMap(({ name, isUsed }): DoctorCheck[] => {
    const { ok, wrong, warning: mayBe } = checksOf(`node ${name}`);
    const own = agents.filter(({ spec }) => spec?.nodeName === name);
    const isReady = own.some(({ status }) =>
      status?.conditions?.some(({ type, status: is }) => type === "Ready" && is === "True"),
    );
    if (isReady) return [ok("nic-agent is ready")];
    if (own.length > 0)
      return [
        wrong("nic-agent is not ready, so no pod gets NICs", `kubectl -n kube-system logs ${own[0]?.metadata.name}`),
      ];
    return isUsed ? [wrong("no nic-agent runs there, and pods with NICs do")] : [mayBe("no nic-agent runs there")];
  });
}

/** Judges claims that have not come on for two minutes. Pure. */
export function judgeClaims(claims: Fact<readonly NicClaim[]>, now: number): DoctorCheck[] {
  const { ok, wrong, unknown } = checksOf("NicClaims");
  if ("fault" in claims) return [unknown(`cannot be read: ${claims.fault}`)];
  const late = claims.value.filter(
    ({ metadata, status }) =>
      status?.phase !== "Active" && now - Date.parse(String(metadata.creationTimestamp)) > LATE_MS,
  );
  if (late.length === 0) return [ok(`${claims.value.length}, none of which has waited for two minutes`)];
  const reasons = Map.groupBy(
    late.flatMap(({ status }) => status?.nics ?? []).filter(({ state }) => state !== "Ready"),
    ({ reason, state }) => reason ?? state,
  );
  const texts = Array.from(reasons, ([reason, nics]) => `${nics.length} ${reason}`).sort();
  return [
    wrong(
      `${late.length} of ${claims.value.length} are not active after two minutes${texts.length === 0 ? "" : `: ${texts.join(", ")}`}`,
      "nicctl status names them, nicctl trace POD tells where one stands",
    ),
  ];
}

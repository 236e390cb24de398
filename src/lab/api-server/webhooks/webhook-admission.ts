import { randomUUID } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { describeError } from "#base/errors";
import { ApiError, badRequest, type Cause, STATUS_CODES, type StatusDetails, type StatusReason } from "../errors.ts";
import { Expressions } from "../expressions/index.ts";
import type { AdmissionPlugin, AdmissionRequest } from "../handlers/admission.ts";
import { validateObject } from "../handlers/decode.ts";
import { asArray, asObject, isObject, type Json, type JsonObject } from "../object/json.ts";
import { apiVersionOf, type KubeObject, withMeta } from "../object/meta.ts";
import { applyJsonPatch } from "../patch/json-patch.ts";
import type { Registry } from "../resources/registry.ts";
import type { ResourceDef } from "../resources/types.ts";
import type { Store } from "../store/store.ts";
import { callWebhook, type ServiceResolver } from "./call.ts";
import { matchesSelectors, ruleMatches } from "./match.ts";

/** The resource group for whose objects no webhook is called, so that a broken configuration can be repaired. */
const GROUP = "admissionregistration.k8s.io";
const DEFAULT_TIMEOUT_SECONDS = 10;

/**
 * Admission webhooks, as kube-apiserver calls them: mutating webhooks one after the other, in the order of their configurations' names,
 * then all validating webhooks concurrently; none that its matchConditions keep away. Left out: conversion between versions, reinvocation.
 */
export class WebhookAdmission implements AdmissionPlugin {
  readonly name = "webhooks";
  readonly #store: Store;
  readonly #registry: Registry;
  readonly #resolve: ServiceResolver;
  readonly #expressions = new Expressions();

  constructor(store: Store, registry: Registry, resolve: ServiceResolver) {
    this.#store = store;
    this.#registry = registry;
    this.#resolve = resolve;
  }

  async admit(request: AdmissionRequest): Promise<KubeObject | undefined> {
    if (request.group === GROUP) return undefined;
    const { group, version } = request;
    const resource = this.#registry
      .list()
      .find((one) => one.group === group && one.version === version && one.plural === request.resource);
    if (resource === undefined) return undefined;
    let { object } = request;
    for (const hook of this.#hooksFor("mutatingwebhookconfigurations", request)) {
      const patch = (await this.#ask(hook, resource, { ...request, object })).patch;
      if (patch !== undefined && object !== undefined) object = this.#patched(hook, resource, object, patch, request);
    }
    const judges = this.#hooksFor("validatingwebhookconfigurations", { ...request, object });
    await Promise.all(judges.map((hook) => this.#ask(hook, resource, { ...request, object })));
    return object === request.object ? undefined : object;
  }

  #hooksFor(plural: string, request: AdmissionRequest): JsonObject[] {
    const configurations = [...this.#store.collection(`${plural}.${GROUP}`).list()].map(({ object }) => object);
    configurations.sort((a, b) => ((a.metadata.name ?? "") < (b.metadata.name ?? "") ? -1 : 1));
    return configurations
      .flatMap((configuration) => asArray(configuration["webhooks"]).filter(isObject))
      .filter((hook) => asArray(hook["rules"]).some((rule) => ruleMatches(asObject(rule), request)))
      .filter((hook) => matchesSelectors(hook, request, this.#store));
  }

  /** Calls one webhook. Throws ApiError if it denies, or if it fails and its failurePolicy is Fail. */
  async #ask(hook: JsonObject, resource: ResourceDef, request: AdmissionRequest): Promise<{ readonly patch?: Json }> {
    const name = String(hook["name"]);
    const { sideEffects, failurePolicy = "Fail", timeoutSeconds = DEFAULT_TIMEOUT_SECONDS } = hook;
    if (request.dryRun && sideEffects !== "None" && sideEffects !== "NoneOnDryRun") {
      throw badRequest(`admission webhook ${JSON.stringify(name)} does not support dry run`);
    }
    let response: JsonObject;
    try {
      const version = asArray(hook["admissionReviewVersions"]).find((one) => one === "v1" || one === "v1beta1");
      if (version === undefined) throw new Error("it takes neither v1 nor v1beta1 reviews");
      if (!this.#expressions.meets(hook, request)) return {};
      const review = reviewOf(`admission.k8s.io/${String(version)}`, resource, request);
      const answer = await callWebhook(asObject(hook["clientConfig"]), review, Number(timeoutSeconds), this.#resolve);
      response = checkedResponse(answer, review);
    } catch (error) {
      if (failurePolicy === "Ignore") return {};
      const why = describeError(error);
      throw new ApiError(
        "InternalError",
        `Internal error occurred: failed calling webhook ${JSON.stringify(name)}: failed to call webhook: ${why}`,
        { cause: error },
      );
    }
    for (const text of asArray(response["warnings"])) request.warn(String(text));
    if (response["allowed"] !== true) throw denied(name, asObject(response["status"]));
    if (typeof response["patch"] !== "string" || response["patch"] === "") return {};
    return { patch: JSON.parse(Buffer.from(response["patch"], "base64").toString("utf8")) as Json };
  }

  #patched(
    hook: JsonObject,
    resource: ResourceDef,
    object: KubeObject,
    patch: Json,
    request: AdmissionRequest,
  ): KubeObject {
    let patched: KubeObject;
    try {
      patched = applyJsonPatch(object, patch) as KubeObject;
    } catch (error) {
      throw new ApiError(
        "InternalError",
        `Internal error occurred: admission webhook ${JSON.stringify(hook["name"])}: ${describeError(error)}`,
        { cause: error },
      );
    }
    const { name, namespace, uid } = object.metadata;
    const next = withMeta(patched, { name, namespace, uid });
    if (!isDeepStrictEqual(next, object)) {
      validateObject(resource, next, request.old, this.#registry.definitions, request.warn);
    }
    return next;
  }
}

function reviewOf(apiVersion: string, resource: ResourceDef, request: AdmissionRequest): JsonObject {
  const { group, version, kind, plural } = resource;
  const { operation, subresource, namespace, name, user, dryRun, object, old } = request;
  const shown = (one: KubeObject | undefined): Json =>
    one === undefined ? null : { ...one, apiVersion: apiVersionOf(group, version), kind };
  const asked = { group, version, resource: plural };
  return {
    apiVersion,
    kind: "AdmissionReview",
    request: {
      uid: randomUUID(),
      kind: { group, version, kind },
      resource: asked,
      requestKind: { group, version, kind },
      requestResource: asked,
      ...(subresource === "" ? {} : { subResource: subresource, requestSubResource: subresource }),
      name,
      ...(namespace === "" ? {} : { namespace }),
      operation,
      userInfo: {
        username: user.name,
        groups: [...(user.groups ?? [])],
        ...(user.extra === undefined ? {} : { extra: user.extra as unknown as Json }),
      },
      object: shown(object),
      oldObject: shown(old),
      dryRun,
      options: null,
    },
  };
}

/** Returns the response of an answer that matches its review. Throws Error. */
function checkedResponse(answer: Json, review: JsonObject): JsonObject {
  const { apiVersion, kind, response } = asObject(answer);
  if (kind !== "AdmissionReview" || apiVersion !== review["apiVersion"]) {
    throw new Error(
      `expected webhook response of ${String(review["apiVersion"])}, Kind=AdmissionReview, got ${String(apiVersion)}, Kind=${String(kind)}`,
    );
  }
  const { uid, patch, patchType } = asObject(response);
  const wanted = asObject(review["request"])["uid"];
  if (uid !== wanted) throw new Error(`expected response.uid=${JSON.stringify(wanted)}, got ${JSON.stringify(uid)}`);
  if (patch !== undefined && patchType !== "JSONPatch")
    throw new Error("webhook returned response.patch but not response.patchType");
  return asObject(response);
}

function denied(name: string, status: JsonObject): ApiError {
  const { message, reason, details } = status;
  const by = `admission webhook ${JSON.stringify(name)} denied the request`;
  const why = [message, reason].find((text) => typeof text === "string" && text !== "");
  const code =
    typeof reason === "string" && Object.hasOwn(STATUS_CODES, reason) ? (reason as StatusReason) : "Forbidden";
  const text = why === undefined ? `${by} without explanation` : `${by}: ${String(why)}`;
  return new ApiError(
    code,
    text,
    isObject(details) ? { details: details as StatusDetails & { causes?: Cause[] } } : {},
  );
}

/**
 * Request bodies as `application/vnd.kubernetes.protobuf`, which kubectl from 1.32 on sends when it creates some built-in
 * kinds. Only the messages and fields below are known (their numbers are those of `generated.proto` in k8s.io/api and
 * k8s.io/apimachinery): a body with any other field is refused as a whole.
 */
import { ApiError, badRequest } from "../errors.ts";
import { type Json, type JsonObject, put } from "../object/json.ts";

/** The media type. */
export const PROTOBUF_TYPE = "application/vnd.kubernetes.protobuf";

/**
 * `NUMBER name TYPE`; `[]` repeated, `{}` map with string keys; `bytes` are base64, a capital letter starts a message. `flag`
 * and `count` are bool and int whose false and 0 mean absent. `Ignored` fields are not accepted on create.
 */
const MESSAGES: Readonly<Record<string, string>> = {
  ObjectMeta:
    "1 name string|2 generateName string|3 namespace string|4 selfLink string|5 uid string|6 resourceVersion string|7 generation count|8 creationTimestamp Time|11 labels {}string|12 annotations {}string|13 ownerReferences []OwnerReference|14 finalizers []string",
  Time: "1 seconds int|2 nanos int",
  OwnerReference:
    "1 kind string|3 name string|4 uid string|5 apiVersion string|6 controller bool|7 blockOwnerDeletion bool",
  LabelSelector: "1 matchLabels {}string|2 matchExpressions []LabelSelectorRequirement",
  LabelSelectorRequirement: "1 key string|2 operator string|3 values []string",
  LocalObjectReference: "1 name string",
  Namespace: "1 metadata ObjectMeta|2 spec NamespaceSpec|3 status NamespaceStatus",
  NamespaceSpec: "1 finalizers []string",
  NamespaceStatus: "1 phase string",
  ConfigMap: "1 metadata ObjectMeta|2 data {}string|3 binaryData {}bytes|4 immutable bool",
  Secret: "1 metadata ObjectMeta|2 data {}bytes|3 type string|4 stringData {}string|5 immutable bool",
  ServiceAccount: "1 metadata ObjectMeta|3 imagePullSecrets []LocalObjectReference|4 automountServiceAccountToken bool",
  SelfSubjectAccessReview:
    "1 metadata ObjectMeta|2 spec SelfSubjectAccessReviewSpec|3 status SubjectAccessReviewStatus",
  SelfSubjectAccessReviewSpec: "1 resourceAttributes ResourceAttributes|2 nonResourceAttributes NonResourceAttributes",
  SubjectAccessReviewStatus: "1 allowed bool|2 reason string|3 evaluationError string|4 denied bool",
  ResourceAttributes:
    "1 namespace string|2 verb string|3 group string|4 version string|5 resource string|6 subresource string|7 name string",
  NonResourceAttributes: "1 path string|2 verb string",
  SelfSubjectRulesReview: "1 metadata ObjectMeta|2 spec SelfSubjectRulesReviewSpec|3 status SubjectRulesReviewStatus",
  SelfSubjectRulesReviewSpec: "1 namespace string",
  SubjectRulesReviewStatus: "3 incomplete bool|4 evaluationError string",
  Role: "1 metadata ObjectMeta|2 rules []PolicyRule",
  ClusterRole: "1 metadata ObjectMeta|2 rules []PolicyRule",
  PolicyRule:
    "1 verbs []string|2 apiGroups []string|3 resources []string|4 resourceNames []string|5 nonResourceURLs []string",
  RoleBinding: "1 metadata ObjectMeta|2 subjects []Subject|3 roleRef RoleRef",
  ClusterRoleBinding: "1 metadata ObjectMeta|2 subjects []Subject|3 roleRef RoleRef",
  Subject: "1 kind string|2 apiGroup string|3 name string|4 namespace string",
  RoleRef: "1 apiGroup string|2 kind string|3 name string",
  Deployment: "1 metadata ObjectMeta|2 spec DeploymentSpec|3 status Ignored",
  DeploymentSpec:
    "1 replicas int|2 selector LabelSelector|3 template PodTemplateSpec|4 strategy DeploymentStrategy|5 minReadySeconds count|6 revisionHistoryLimit int|7 paused flag|9 progressDeadlineSeconds int",
  DeploymentStrategy: "1 type string",
  PodTemplateSpec: "1 metadata ObjectMeta|2 spec PodSpec",
  PodSpec:
    "2 containers []Container|3 restartPolicy string|4 terminationGracePeriodSeconds int|5 activeDeadlineSeconds int|6 dnsPolicy string|7 nodeSelector {}string|8 serviceAccountName string|9 serviceAccount string|10 nodeName string|11 hostNetwork flag|12 hostPID flag|13 hostIPC flag|15 imagePullSecrets []LocalObjectReference|16 hostname string|17 subdomain string|19 schedulerName string|24 priorityClassName string",
  Container:
    "1 name string|2 image string|3 command []string|4 args []string|5 workingDir string|6 ports []ContainerPort|7 env []EnvVar|8 resources Nothing|13 terminationMessagePath string|14 imagePullPolicy string|16 stdin flag|17 stdinOnce flag|18 tty flag|20 terminationMessagePolicy string",
  ContainerPort: "1 name string|2 hostPort count|3 containerPort int|4 protocol string|5 hostIP string",
  EnvVar: "1 name string|2 value string",
  Eviction: "1 metadata ObjectMeta|2 deleteOptions DeleteOptions",
  DeleteOptions:
    "1 gracePeriodSeconds int|2 preconditions Preconditions|3 orphanDependents bool|4 propagationPolicy string|5 dryRun []string",
  Preconditions: "1 uid string|2 resourceVersion string",
  /** A message that is accepted only if it is empty. */
  Nothing: "",
};

interface Field {
  readonly name: string;
  readonly type: string;
  readonly repeated: boolean;
  readonly map: boolean;
}

function fieldsOf(message: string): Map<number, Field> | undefined {
  const text = Object.hasOwn(MESSAGES, message) ? MESSAGES[message] : undefined;
  if (text === undefined) return undefined;
  const fields = new Map<number, Field>();
  for (const part of text.split("|")) {
    const [number = "", name = "", type = ""] = part.split(" ");
    if (name !== "")
      fields.set(Number(number), {
        name,
        type: type.replace(/^(\[\]|\{\})/, ""),
        repeated: type.startsWith("[]"),
        map: type.startsWith("{}"),
      });
  }
  return fields;
}

/**
 * Decodes a body: the magic `k8s\0`, then runtime.Unknown with type and message. Throws ApiError `BadRequest` or `UnsupportedMediaType`.
 */
export function decodeProtobuf(bytes: Buffer): JsonObject {
  if (bytes.length < 4 || bytes.toString("latin1", 0, 4) !== "k8s\0")
    throw badRequest("provided data does not appear to be a protobuf message: want the prefix k8s\\0");
  let apiVersion = "";
  let kind = "";
  let raw: Buffer = Buffer.alloc(0);
  for (const { number, value } of records(bytes.subarray(4))) {
    if (number === 1 && Buffer.isBuffer(value)) {
      for (const part of records(value)) {
        if (part.number === 1) apiVersion = part.value.toString();
        else if (part.number === 2) kind = part.value.toString();
      }
    } else if (number === 2 && Buffer.isBuffer(value)) raw = value;
  }
  return { apiVersion, kind, ...message(kind, raw, kind) };
}

interface WireRecord {
  readonly number: number;
  readonly value: Buffer | bigint;
}

/** The records of a message: varints and length-delimited ones; Kubernetes has no others in these kinds. */
function* records(bytes: Buffer): Generator<WireRecord> {
  let at = 0;
  const varint = (): bigint => {
    let result = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = bytes[at];
      if (byte === undefined) throw badRequest("cannot decode the protobuf body: it ends inside a number");
      at += 1;
      result |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt.asUintN(64, result);
    }
    throw badRequest("cannot decode the protobuf body: found a number of more than 10 bytes");
  };
  while (at < bytes.length) {
    const tag = varint();
    const number = Number(tag >> 3n);
    const wire = Number(tag & 7n);
    if (wire === 0) yield { number, value: varint() };
    else if (wire === 2) {
      const length = Number(varint());
      if (length > bytes.length - at) throw badRequest("cannot decode the protobuf body: a length goes past its end");
      yield { number, value: bytes.subarray(at, at + length) };
      at += length;
    } else throw badRequest(`cannot decode the protobuf body: found wire type ${wire}, want 0 or 2`);
  }
}

function message(type: string, bytes: Buffer, path: string): JsonObject {
  const fields = fieldsOf(type);
  if (fields === undefined) throw unknown(path);
  const result: JsonObject = {};
  for (const { number, value } of records(bytes)) {
    const field = fields.get(number);
    if (field === undefined) throw unknown(`${path}, field ${number}`);
    const here = `${path}.${field.name}`;
    if (field.map) addEntry(result, field, value, here);
    else if (field.repeated)
      result[field.name] = [
        ...((result[field.name] as Json[] | undefined) ?? []),
        scalarOrMessage(field.type, value, here),
      ];
    else addMember(result, field, value, here);
  }
  return result;
}

/** Go writes every string and number, set or not: an empty one means absent. */
function addMember(result: JsonObject, field: Field, value: Buffer | bigint, path: string): void {
  const decoded = scalarOrMessage(field.type, value, path);
  const nothing =
    decoded === "" ||
    decoded === null ||
    (field.type === "flag" && decoded === false) ||
    (field.type === "count" && decoded === 0);
  if (!nothing) result[field.name] = decoded;
}

function addEntry(result: JsonObject, field: Field, value: Buffer | bigint, path: string): void {
  if (!Buffer.isBuffer(value)) throw badRequest(`cannot decode the protobuf body: ${path} is not a map entry`);
  let key = "";
  let member: Json = "";
  for (const part of records(value)) {
    if (part.number === 1) key = part.value.toString();
    else if (part.number === 2) member = scalarOrMessage(field.type, part.value, path);
  }
  const map = (result[field.name] as JsonObject | undefined) ?? {};
  put(map, key, member);
  result[field.name] = map;
}

function scalarOrMessage(type: string, value: Buffer | bigint, path: string): Json {
  if (typeof value === "bigint") {
    if (type === "bool" || type === "flag") return value !== 0n;
    if (type === "int" || type === "count") return Number(BigInt.asIntN(64, value));
  } else if (type === "string") return value.toString("utf8");
  else if (type === "bytes") return value.toString("base64");
  else if (type === "Ignored") return null;
  else if (type === "Time") return time(value, path);
  else if (/^[A-Z]/.test(type)) return message(type, value, path);
  throw badRequest(`cannot decode the protobuf body: ${path} is not a ${type}`);
}

function time(bytes: Buffer, path: string): Json {
  const { seconds } = message("Time", bytes, path);
  if (typeof seconds !== "number" || seconds === 0 || Math.abs(seconds) > 8.64e12) return null;
  return `${new Date(seconds * 1000).toISOString().slice(0, 19)}Z`;
}

function unknown(path: string): ApiError {
  return new ApiError(
    "UnsupportedMediaType",
    `the lab's API server does not know the protobuf form of ${path}: send JSON or YAML (with kubectl: "kubectl create --dry-run=client -o yaml ... | kubectl apply -f -")`,
  );
}
